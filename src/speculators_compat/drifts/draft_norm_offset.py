"""speculators 0.4 norms with the weight as stored; Gemma's kind multiplies by 1 + weight."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ..verifier import norm_offset, text_config
from ._training import DRAFT_INIT, DRAFT_MODEL


def _add_offset(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def setup(config: Any, *rest: Any, **named: Any) -> None:
        offset = norm_offset(text_config(config.name_or_path)) if config.name_or_path else 0.0
        wrapped(config, *rest, **named)
        if offset:
            instance.verifier_norm.weight.data += offset

    setup(*args, **kwargs)


DRIFT = Drift(
    id="draft_norm_offset",
    title="Gemma-style final norms multiply by one plus the weight",
    symptom="no error: targets are computed with a norm that lacks the offset of one",
    silent=True,
    call_site="models/eagle3/core.py:_setup_embeddings_and_lm_heads",
    speculators=">=0.4.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/models/eagle3/core.py#L297",
    tripwire=DRAFT_INIT,
    sites=(wrap(f"{DRAFT_MODEL}._setup_embeddings_and_lm_heads", _add_offset),),
)
