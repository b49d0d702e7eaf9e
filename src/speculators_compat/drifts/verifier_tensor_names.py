"""From 0.5 on the verifier's tensors are looked up by their ending; another model's may end alike."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ..verifier import checkpoint_keys, resolve_names
from ._training import TRAINER_INIT


def _by_structure(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def locate(layer_names: list[str], model_path: str) -> Any:
        names = resolve_names(layer_names, checkpoint_keys(model_path))
        # What the language model does not hold under a name that we know may have one that upstream knows.
        asked = [names.get(name, name) for name in layer_names]
        found = wrapped(asked, model_path)
        return {name: found[key] for name, key in zip(layer_names, asked, strict=True) if key in found}

    return locate(*args, **kwargs)


DRIFT = Drift(
    id="verifier_tensor_names",
    title="The verifier's embeddings, head and norm are its language model's own",
    symptom="no error: a vision tower's norm or embeddings are taken for the language model's",
    silent=True,
    call_site="utils/loading.py:load_model_layers",
    speculators=">=0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/utils/loading.py#L82",
    tripwire=TRAINER_INIT,
    sites=(wrap("speculators.utils.loading:load_model_layers", _by_structure),),
)
