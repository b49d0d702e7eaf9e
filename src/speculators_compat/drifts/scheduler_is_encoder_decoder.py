"""vLLM's SchedulerConfig requires ``is_encoder_decoder``; speculators 0.3.0 does not pass it."""

from __future__ import annotations

import inspect

from ..calls import accepts, add_default, default_of
from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


def _required() -> bool:
    config = from_generator("SchedulerConfig")
    return accepts(config, "is_encoder_decoder") and default_of(config, "is_encoder_decoder") is inspect.Parameter.empty


DRIFT = Drift(
    id="scheduler_is_encoder_decoder",
    title="SchedulerConfig gets is_encoder_decoder",
    symptom="pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.4",
    since="0.12.0",  # from 0.11.1 on an optional InitVar
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.12.0/vllm/config/scheduler.py#L37",
    probe=_required,
    # A decoder-only verifier is all that the generator can drive.
    sites=(wrap(f"{GENERATOR}:SchedulerConfig", add_default("is_encoder_decoder", False)),),
)
