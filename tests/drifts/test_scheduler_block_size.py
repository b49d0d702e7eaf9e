import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("scheduler_block_size"):
        done = run_generator("scheduler_block_size")
        assert "Scheduler.__init__() missing 1 required positional argument: 'block_size'" in done.error
