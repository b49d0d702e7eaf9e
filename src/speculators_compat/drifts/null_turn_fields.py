"""Turns of one file with different keys get the other keys as None, and lose their role or text."""

from __future__ import annotations

from typing import Any

from ..drift import Drift
from ._preparation import around_batch
from ._training import BUILD_DATASET


def _without_nulls(wrapped: Any, examples: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    conversations = examples.get("conversations")
    if not conversations:
        return wrapped(examples, *args, **kwargs)
    cleaned = [_clean(conversation) for conversation in conversations]
    return wrapped({**examples, "conversations": cleaned}, *args, **kwargs)


def _clean(conversation: Any) -> Any:
    if not isinstance(conversation, list):
        return conversation
    return [
        {key: value for key, value in turn.items() if value is not None} if isinstance(turn, dict) else turn
        for turn in conversation
    ]


DRIFT = Drift(
    id="null_turn_fields",
    title="Keys that a turn does not have are absent, not None",
    # datasets before 5 gives every turn of a JSON file the same keys; upstream then asks "from"
    # before "role".
    symptom="no error: \"Unknown role 'None', skipping turn\" is logged",
    silent=True,
    call_site="data_generation/preprocessing.py:_normalize_conversation",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L76",
    tripwire=BUILD_DATASET,
    sites=(around_batch("null_turn_fields/1", _without_nulls),),
)
