"""speculators 0.4 asks the accelerator that torch was built for, which is not there, for its free memory.

A torch built without any accelerator gets as far as a count of zero and fails on a KV cache without blocks.
"""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR
from ._memory import accelerator_present, memory_info


def _host(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    return memory_info()


DRIFT = Drift(
    id="host_memory_info",
    title="Free memory is the host's where there is no accelerator (0.4)",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.4.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0.1/src/speculators/utils/util.py",
    probe=lambda: not accelerator_present(),
    sites=(wrap(f"{GENERATOR}:mem_get_info", _host),),
)
