"""vLLM 0.11.0 switches chunked prefill off where a SchedulerConfig is made by hand; later releases switch it on.

Without it a step's token budget must hold a whole ``max_model_len``, however small a caller wants the step to be.
"""

from __future__ import annotations

from ..calls import accepts, add_default, default_of
from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


def _off_by_default() -> bool:
    config = from_generator("SchedulerConfig")
    return accepts(config, "enable_chunked_prefill") and not default_of(config, "enable_chunked_prefill")


DRIFT = Drift(
    id="chunked_prefill",
    title="Prompts may be prefilled in chunks, so that a step's token budget may be small",
    symptom="ValidationError: max_num_batched_tokens (64) is smaller than max_model_len (128).",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until="0.11.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/config/scheduler.py#L80",
    probe=_off_by_default,
    sites=(wrap(f"{GENERATOR}:SchedulerConfig", add_default("enable_chunked_prefill", True)),),
)
