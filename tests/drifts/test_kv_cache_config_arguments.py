import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("kv_cache_config_arguments"):
        done = run_generator("kv_cache_config_arguments")
        assert "get_kv_cache_config_from_groups() got an unexpected keyword argument 'kv_cache_specs'" in done.error
