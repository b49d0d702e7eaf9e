"""From 0.5 to 0.7 every draft norms with the weight as stored; Gemma's kind multiplies by 1 + weight."""

from __future__ import annotations

from ..drift import Drift, wrap
from ._training import final_norm_of_its_kind

LOAD = "speculators.model:DraftVocabMixin.load_verifier_weights"

DRIFT = Drift(
    id="loaded_norm_offset",
    title="Gemma-style final norms come before the verifier's weights are loaded",
    symptom="no error: targets are computed with a norm that lacks the offset of one",
    silent=True,
    call_site="model.py:load_verifier_weights",
    speculators=">=0.5,<0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/model.py",
    tripwire=LOAD,
    sites=(wrap(LOAD, final_norm_of_its_kind),),
)
