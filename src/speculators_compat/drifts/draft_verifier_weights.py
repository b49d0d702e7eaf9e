"""The verifier's tensors are looked up by exact name (0.3.0) or by their ending (0.4)."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ..verifier import load_tensors
from ._training import CORE, DRAFT_INIT


def _by_structure(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def locate(layer_names: list[str], model_path: str) -> Any:
        return load_tensors(layer_names, model_path, wrapped)

    return locate(*args, **kwargs)


DRIFT = Drift(
    id="draft_verifier_weights",
    title="The verifier's embeddings, head and norm are found under a wrapper's prefix",
    # 0.4 takes the first name with the right ending: a vision tower's "vision_model.norm.weight"
    # will do.
    symptom="ValueError: None of the requested tensor names were found in the index.",
    call_site="models/eagle3/core.py:_setup_embeddings_and_lm_heads",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/models/eagle3/core.py#L238",
    tripwire=DRAFT_INIT,
    sites=(wrap(f"{CORE}:load_model_layers", _by_structure),),
)
