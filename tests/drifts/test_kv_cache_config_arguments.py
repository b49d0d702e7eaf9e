import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(only_on, run_generator, healthy):
    if only_on("kv_cache_config_arguments", "0.3"):
        done = run_generator("kv_cache_config_arguments")
        assert "get_kv_cache_config_from_groups() got an unexpected keyword argument 'kv_cache_specs'" in done.error
