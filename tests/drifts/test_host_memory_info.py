import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    import torch

    if needed("host_memory_info") and not torch.accelerator.is_available():
        done = run_generator("host_memory_info", "kv_cache_budget")
        assert "mem_get_info" in done.error
        assert "Found no NVIDIA driver" in done.error
