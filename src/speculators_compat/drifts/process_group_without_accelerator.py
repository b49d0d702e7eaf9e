"""torchrun without an accelerator: from 0.7 on the set-up asks for a device that is not there, and for its backend."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute
from ._training import has_accelerator

DISTRIBUTED = "speculators.train.distributed"


def _torch_on_a_cpu(torch: Any) -> Any:
    """The module ``torch`` as the set-up sees it: without an accelerator its device is the CPU."""

    class Accelerator:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch.accelerator, name)

        def set_device_index(self, index: int) -> None:
            if has_accelerator():
                torch.accelerator.set_device_index(index)

        def current_accelerator(self, *args: Any, **kwargs: Any) -> Any:
            return torch.accelerator.current_accelerator(*args, **kwargs) if has_accelerator() else torch.device("cpu")

    class Torch:
        accelerator = Accelerator()

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    return Torch()


def _dist_on_a_cpu(dist: Any) -> Any:
    """``torch.distributed`` as the set-up sees it: gloo's processes are bound to no device."""

    class Dist:
        def __getattr__(self, name: str) -> Any:
            return getattr(dist, name)

        def init_process_group(self, *args: Any, **kwargs: Any) -> None:
            if not has_accelerator():
                kwargs.pop("device_id", None)
            dist.init_process_group(*args, **kwargs)

    return Dist()


def _on_a_cpu_mesh(shard: Any) -> Any:
    def fully_shard(*args: Any, **kwargs: Any) -> Any:
        if has_accelerator() or kwargs.get("mesh") is not None:
            return shard(*args, **kwargs)
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        # A torch that was built for CUDA plans for CUDA devices, whether there are any or not.
        return shard(*args, **{**kwargs, "mesh": init_device_mesh("cpu", (dist.get_world_size(),))})

    return fully_shard


DRIFT = Drift(
    id="process_group_without_accelerator",
    title="torchrun trains on a CPU, over gloo (0.7 and later)",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/distributed.py:maybe_setup_distributed",
    speculators=">=0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/distributed.py#L151",
    tripwire=f"{DISTRIBUTED}:maybe_setup_distributed",
    sites=(
        substitute(f"{DISTRIBUTED}:torch", _torch_on_a_cpu),
        substitute(f"{DISTRIBUTED}:dist", _dist_on_a_cpu),
        substitute(f"{DISTRIBUTED}:fully_shard", _on_a_cpu_mesh),
    ),
)
