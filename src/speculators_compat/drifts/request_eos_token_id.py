"""vLLM's Request no longer takes ``eos_token_id``: it lives in the sampling parameters, and prefill never reads it."""

from __future__ import annotations

from ..calls import drop_unknown
from ..drift import Drift, wrap
from ._generator import GENERATOR, lacks

DRIFT = Drift(
    id="request_eos_token_id",
    title="eos_token_id is not passed where Request no longer takes it",
    symptom="TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'",
    call_site="data_generation/vllm_hidden_states_generator.py:generate",
    speculators=">=0.3.0,<0.5",
    since="0.17.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.17.0/vllm/v1/request.py#L60",
    probe=lacks("Request", "eos_token_id"),
    sites=(wrap(f"{GENERATOR}:Request", drop_unknown("eos_token_id")),),
)
