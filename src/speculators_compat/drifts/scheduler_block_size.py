"""vLLM's Scheduler requires ``block_size``; speculators 0.3.0 does not pass it."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR, takes


def _with_block_size(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "block_size" not in kwargs:
        kwargs = {**kwargs, "block_size": kwargs["vllm_config"].cache_config.block_size}
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="scheduler_block_size",
    title="Scheduler gets its block_size",
    symptom="TypeError: Scheduler.__init__() missing 1 required positional argument: 'block_size'",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.4",
    since="0.11.1",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/v1/core/sched/scheduler.py#L58",
    probe=takes("Scheduler", "block_size"),
    sites=(wrap(f"{GENERATOR}:Scheduler", _with_block_size),),
)
