import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(only_on, run_generator, healthy):
    if only_on("scheduler_without_block_size", "0.4"):
        done = run_generator("scheduler_without_block_size")
        assert "got an unexpected keyword argument 'block_size'" in done.error
