import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator):
    """A prompt of more than two blocks, whatever size of block the workers choose."""
    if needed("prefix_caching"):
        long = {"prompts": [[1, 2, 3] * 100], "max_model_len": 512}
        assert run_generator(**long).lengths == [300]
        done = run_generator("prefix_caching", **long)
        assert "cache_full_blocks" in done.error
