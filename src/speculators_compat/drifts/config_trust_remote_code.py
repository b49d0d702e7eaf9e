"""The generator hard-wires ``trust_remote_code=True`` for the verifier's config; a user cannot refuse it."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._generator import GENERATOR
from ._loaders import TrustingLoader

DRIFT = Drift(
    id="config_trust_remote_code",
    title="The trust option reaches the verifier's config",
    symptom="no error: AutoConfig.from_pretrained(model_path, trust_remote_code=True)",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/vllm_hidden_states_generator.py#L86",
    silent=True,
    sites=(substitute(f"{GENERATOR}:AutoConfig", TrustingLoader),),
)
