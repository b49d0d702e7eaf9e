"""transformers 5 dropped ``modeling_attn_mask_utils``; speculators imports one name from it, for EAGLE-1 drafts."""

from __future__ import annotations

from ..drift import Drift
from ._absent import is_absent, searched_too

DRIFT = Drift(
    id="transformers_attention_masks",
    title="speculators' EAGLE-1 model imports without transformers' old attention masks",
    symptom="ModuleNotFoundError: No module named 'transformers.modeling_attn_mask_utils'",
    call_site="models/eagle.py, convert/eagle/eagle_legacy_model.py",
    speculators=">=0.3.0,<0.7",
    # Bound to transformers, whose releases vLLM's follow only loosely: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/models/eagle.py#L24",
    process="both",
    probe=is_absent("transformers", "modeling_attn_mask_utils"),
    sites=(searched_too("transformers"),),
)
