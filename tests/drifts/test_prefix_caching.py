import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(only_on, run_generator, healthy):
    if only_on("prefix_caching", "0.3"):
        done = run_generator("prefix_caching")
        assert "cache_full_blocks" in done.error
