import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("prefix_caching"):
        done = run_generator("prefix_caching")
        assert "cache_full_blocks" in done.error
