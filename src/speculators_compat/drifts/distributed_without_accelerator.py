"""torchrun without an accelerator: no process group can be started, and no device mesh."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import UTILS, has_accelerator


def _start_gloo(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from speculators.train import utils

    if not utils.is_distributed or has_accelerator():
        return wrapped(*args, **kwargs)
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return utils.local_rank, utils.world_size, dist.get_rank(), True


def _on_a_cpu_mesh(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if has_accelerator() or kwargs.get("mesh") is not None:
        return wrapped(*args, **kwargs)
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    # A torch that was built for CUDA plans for CUDA devices, whether there are any or not.
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return wrapped(*args, **{**kwargs, "mesh": mesh})


DRIFT = Drift(
    id="distributed_without_accelerator",
    title="torchrun trains on a CPU, over gloo",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/utils.py:maybe_setup_distributed",
    speculators=">=0.3.0,<0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/utils.py#L30",
    tripwire=f"{UTILS}:maybe_setup_distributed",
    sites=(
        wrap(f"{UTILS}:maybe_setup_distributed", _start_gloo),
        wrap(f"{UTILS}:fully_shard", _on_a_cpu_mesh),
    ),
)
