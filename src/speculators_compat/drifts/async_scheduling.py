"""Asynchronous scheduling became vLLM's default; the generator drives the plain scheduler one step at a time."""

from __future__ import annotations

from ..calls import accepts, add_default, default_of
from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


def _automatic() -> bool:
    config = from_generator("SchedulerConfig")
    return accepts(config, "async_scheduling") and default_of(config, "async_scheduling") is None


DRIFT = Drift(
    id="async_scheduling",
    title="Asynchronous scheduling is off: the generator drives one step at a time",
    symptom="no error: workers prepare steps for a scheduler that runs ahead, the generator's does not",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.14.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.14.0/vllm/config/scheduler.py#L133",
    silent=True,
    probe=_automatic,
    sites=(wrap(f"{GENERATOR}:SchedulerConfig", add_default("async_scheduling", False)),),
)
