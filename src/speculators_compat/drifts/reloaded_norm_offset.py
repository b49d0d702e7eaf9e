"""From 0.8 on drafts load weights by a second method; 0.9 knows Gemma's kind of norm in block drafts only."""

from __future__ import annotations

from ..drift import Drift, wrap
from ._training import final_norm_of_its_kind

LOAD = "speculators.model:DraftVocabMixin._load_verifier_weights"

DRIFT = Drift(
    id="reloaded_norm_offset",
    title="Gemma-style final norms come before the weights that a checkpoint leaves out",
    symptom="no error: targets are computed with a norm that lacks the offset of one",
    silent=True,
    call_site="model.py:_load_verifier_weights",
    speculators=">=0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.9.0/src/speculators/model.py",
    tripwire=LOAD,
    sites=(wrap(LOAD, final_norm_of_its_kind),),
)
