"""The draft cannot allow a verifier's remote config; 0.3.0 reads it on the wrapper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..drift import Drift, substitute
from ..verifier import text_config
from ._training import CORE, DRAFT_INIT


def _text_configs_only(auto_config: Any) -> Any:
    """A stand-in for ``AutoConfig`` in the draft's module: ``from_pretrained`` alone."""

    def from_pretrained(name_or_path: str, **kwargs: Any) -> Any:
        return text_config(name_or_path, auto_config.from_pretrained, **kwargs)

    return SimpleNamespace(from_pretrained=from_pretrained)


DRIFT = Drift(
    id="draft_verifier_config",
    title="The verifier's config is read as data, from its language model",
    symptom=("ValueError: The repository ... contains custom code which must be executed to correctly load the model."),
    call_site="models/eagle3/core.py:_setup_embeddings_and_lm_heads",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/models/eagle3/core.py#L265",
    tripwire=DRAFT_INIT,
    sites=(substitute(f"{CORE}:AutoConfig", _text_configs_only),),
)
