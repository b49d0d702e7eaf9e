"""Workers forked from a process that has touched CUDA cannot use it; vLLM's default start method is fork."""

from __future__ import annotations

import os
from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR

START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def accelerator_in_use() -> bool:
    """Whether this process has initialised an accelerator's runtime."""
    import torch

    devices = (torch.cuda, getattr(torch, "xpu", None))
    return any(device.is_initialized() for device in devices if device is not None)


def _spawn_if_needed(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if START_METHOD in os.environ or not accelerator_in_use():
        return wrapped(*args, **kwargs)
    # Only for these workers: another engine of the same process keeps the user's own choice.
    os.environ[START_METHOD] = "spawn"
    try:
        return wrapped(*args, **kwargs)
    finally:
        del os.environ[START_METHOD]


DRIFT = Drift(
    id="fork_after_cuda",
    title="Workers are spawned once this process has initialised an accelerator",
    symptom="RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://docs.vllm.ai/en/latest/usage/troubleshooting.html#python-multiprocessing",
    # Whether it is needed shows at the call: the wrapper asks then.
    sites=(wrap(f"{GENERATOR}:MultiprocExecutor", _spawn_if_needed),),
)
