import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(only_on, run_generator, healthy):
    if only_on("scheduler_block_size", "0.3"):
        done = run_generator("scheduler_block_size")
        assert "Scheduler.__init__() missing 1 required positional argument: 'block_size'" in done.error
