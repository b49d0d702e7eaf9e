"""speculators 0.3.0 asks CUDA for free memory, on machines that have none too."""

from __future__ import annotations

from typing import Any

import wrapt

from ..drift import Drift, substitute
from ._generator import GENERATOR
from ._memory import accelerator_present, memory_info


class _Cuda(wrapt.ObjectProxy):
    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return memory_info()


class _Torch(wrapt.ObjectProxy):
    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self._self_cuda = _Cuda(torch.cuda)

    @property
    def cuda(self) -> Any:
        return self._self_cuda


def _no_cuda() -> bool:
    import torch

    return not torch.cuda.is_available() or not accelerator_present()


DRIFT = Drift(
    id="cuda_memory_info",
    title="Free memory is the host's where there is no CUDA (0.3.0)",
    symptom="RuntimeError: No CUDA GPUs are available",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.4",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/vllm_hidden_states_generator.py#L133",
    probe=_no_cuda,
    sites=(substitute(f"{GENERATOR}:torch", _Torch),),
)
