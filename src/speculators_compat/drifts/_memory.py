"""Free memory of whatever device the driver process sees."""

from __future__ import annotations


def accelerator_present() -> bool:
    """Whether vLLM runs on an accelerator. Its own platform is asked: the CPU build may sit beside a GPU."""
    from vllm.platforms import current_platform

    return not current_platform.is_cpu()


def memory_info() -> tuple[int, int]:
    """Free and total bytes: of the current accelerator, or of the host where there is none."""
    import torch

    if accelerator_present():
        module = torch.get_device_module(torch.accelerator.current_accelerator())
        free, total = module.mem_get_info()
        return int(free), int(total)
    return _host_memory()


def _host_memory() -> tuple[int, int]:
    import psutil  # a requirement of vLLM itself

    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)
