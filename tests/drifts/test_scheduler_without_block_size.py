import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("scheduler_without_block_size"):
        done = run_generator("scheduler_without_block_size")
        assert "got an unexpected keyword argument 'block_size'" in done.error
