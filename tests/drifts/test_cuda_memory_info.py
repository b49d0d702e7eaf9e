import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    import torch

    if needed("cuda_memory_info") and not torch.cuda.is_available():
        done = run_generator("cuda_memory_info")
        assert "mem_get_info" in done.error
        assert "No CUDA GPUs are available" in done.error or "NVIDIA driver" in done.error
