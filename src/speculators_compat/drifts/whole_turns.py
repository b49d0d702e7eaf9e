"""Turns lose what speculators' normalisation does not know: reasoning, tool calls, tool results, parts of content."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..conversations import Turn, read_turns
from ..drift import Drift, wrap
from ._preparation import Batch, around_batch, batch_tokenizer, column
from ._training import PREPARE, PREPROCESSING

log = logging.getLogger("speculators_compat")


def _normalize(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Turn]:
    """Upstream's contract: a conversation in, its turns out; none if it has to be dropped."""
    # From 0.6 on upstream hands images to a multimodal model's processor.
    media = hasattr(sys.modules[PREPROCESSING], "_adapt_conv_for_vllm")
    try:
        return read_turns(*args, **{**kwargs, "media": media})
    except ValueError as error:
        log.warning("Conversation is dropped: %s", error)
        return []


def _warn_of_tools(wrapped: Any, call: Batch) -> Any:
    # From 0.7 on upstream reads the declarations, and the template has them.
    if not hasattr(sys.modules[PREPROCESSING], "_parse_conv_tools"):
        declared = sum(1 for tools in column(call["examples"], "tools") if tools)
        if declared and getattr(batch_tokenizer(call), "is_fast", False):
            log.warning(
                "%d conversations are rendered without their tool declarations: speculators gives the template none.",
                declared,
            )
    return wrapped(**call)


DRIFT = Drift(
    id="whole_turns",
    title="Turns keep their reasoning, tool calls, tool results and parts, or are dropped with a reason",
    symptom="no error: \"Unknown role 'tool', skipping turn\" is logged at most, reasoning and tool calls are gone",
    silent=True,
    call_site="data_generation/preprocessing.py:_normalize_conversation",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L62",
    tripwire=PREPARE,
    sites=(
        # Also names the change in the cache of datasets, which does not see the one below.
        around_batch("whole_turns/1", _warn_of_tools),
        wrap(f"{PREPROCESSING}:_normalize_conversation", _normalize),
    ),
)
