"""The generator loads the verifier's tokenizer without ``trust_remote_code``; Kimi's is remote code."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._generator import GENERATOR
from ._loaders import TrustingLoader

DRIFT = Drift(
    id="tokenizer_trust_remote_code",
    title="The trust option reaches the verifier's tokenizer",
    symptom="ValueError: The repository contains custom code which must be executed to correctly load the model.",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/vllm_hidden_states_generator.py#L84",
    sites=(substitute(f"{GENERATOR}:AutoTokenizer", TrustingLoader),),
)
