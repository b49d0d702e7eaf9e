"""transformers 5 dropped ``modeling_attn_mask_utils``; speculators imports one name from it, for EAGLE-1 drafts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ..drift import Drift, Site

#: Holds a module of that name, for which transformers' own folder is searched first.
FOLDER = Path(__file__).parent.parent / "absent" / "transformers"


def _dropped() -> bool:
    spec = importlib.util.find_spec("transformers.modeling_attn_mask_utils")
    return spec is None or Path(spec.origin or "").parent == FOLDER


def _searched_too(path: Any) -> list[str]:
    return [*path, str(FOLDER)]


DRIFT = Drift(
    id="transformers_attention_masks",
    title="speculators' EAGLE-1 model imports without transformers' old attention masks",
    symptom="ModuleNotFoundError: No module named 'transformers.modeling_attn_mask_utils'",
    call_site="models/eagle.py",
    speculators=">=0.3.0,<0.5",
    # Bound to transformers, whose releases vLLM's follow only loosely: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/models/eagle.py#L24",
    process="both",
    probe=_dropped,
    sites=(Site("transformers:__path__", _searched_too, "wrap"),),
)
