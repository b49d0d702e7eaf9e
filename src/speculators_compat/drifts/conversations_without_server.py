"""From 0.8 on only a running server turns conversations into tokens; a tokenizer does as well."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..boundaries import TurnRow, turn_rows
from ..conversations import Turn, has_media, read_turns
from ..drift import Drift, wrap
from ..masks import turn_mask
from ..rendering import Renderer
from ._preparation import Batch, Rows, around_batch, column, tokenizer_of
from ._training import PREPARE, PREPROCESSING
from .dropped_conversations import check_columns
from .slow_tokenizer_mask import needs_ids, turn_ids

log = logging.getLogger("speculators_compat")

BUILD = f"{PREPROCESSING}:build_speculator_training_dataset"


class Local:
    """Stands where the address of a server is expected.

    Args:
        tokenizer: The verifier's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def rows(self, conversation: Any, tools: Any, limit: int) -> tuple[list[tuple[list[int], list[int]]], list[int]]:
        """Ids and mask of each assistant turn, and the numbers of turns whose context fills the limit.

        Raises:
            ValueError: The conversation cannot be prepared.
        """
        turns = read_turns(conversation, media=True)
        if any(map(has_media, turns)):
            raise ValueError("it has content that is not text, which takes a server (render_endpoint)")
        declared = json.loads(tools) if isinstance(tools, str) else tools
        marks = turn_ids(self.tokenizer) if needs_ids(self.tokenizer) else None
        renderer = Renderer(self.tokenizer) if marks else None

        def render(turns: Sequence[Mapping[str, Any]], prompt: bool) -> list[int]:
            given = [dict(turn) for turn in turns]
            return renderer.asked_ids(given, declared, prompt) if renderer else self._plain(given, declared, prompt)

        rows, left_out = turn_rows(turns, render, limit)
        if not rows and not left_out:
            raise ValueError("no assistant turn follows another turn")
        return [(row.ids, _mask(row, marks)) for row in rows], left_out

    def _plain(self, turns: list[Turn], tools: Any, prompt: bool) -> list[int]:
        """As a server does: the template's text, without anything that the tokenizer would put around it."""
        text = self.tokenizer.apply_chat_template(turns, tools=tools, tokenize=False, add_generation_prompt=prompt)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _mask(row: TurnRow, marks: tuple[int, int, int] | None) -> list[int]:
    """What the verifier wrote; where the ids mark turns, never a turn's header (a name that the prompt lacks)."""
    if marks is None:
        return row.mask
    return [weight * inside for weight, inside in zip(row.mask, turn_mask(row.ids, *marks), strict=True)]


def _batch(wrapped: Any, call: Batch) -> Any:
    """Upstream's contract: conversations in, rows of turns out."""
    local, examples, limit = call["render_endpoint"], call["examples"], call["max_length"]
    if not isinstance(local, Local) or "input_ids" in examples:
        return wrapped(**call)
    rows = Rows(call)
    given = zip(column(examples, "conversations"), column(examples, "tools"), strict=True)
    for index, (conversation, tools) in enumerate(given):
        try:
            found, left_out = local.rows(conversation or (), tools, limit)
        except Exception as error:  # whatever a template raises costs its own conversation only
            log.warning("Conversation %d is dropped: %s: %s", index, type(error).__name__, error)
            continue
        for turn in left_out:
            log.warning("Turn %d of conversation %d is dropped: its context fills %d tokens", turn, index, limit)
        for ids, mask in found:
            _add(rows, index, ids, mask, limit)
    return rows.results


def _add(rows: Rows, index: int, ids: list[int], mask: list[int], limit: int) -> None:
    problem = rows.add(ids[:limit], mask[:limit]) if any(mask[:limit]) else "no trainable token"
    if problem:
        log.warning("A turn of conversation %d is dropped: %s", index, problem)
    elif len(ids) > limit:
        log.warning("Sample %d is cut from %d to %d tokens.", index, len(ids), limit)


def _build(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = inspect.signature(wrapped).bind(*args, **kwargs)
    given = bound.arguments
    check_columns(given["dataset"])
    if given.get("render_endpoint") is None and "conversations" in given["dataset"].column_names:
        # Rows of ids are text: a multimodal model's processor has no part in them.
        given["processor"] = tokenizer = tokenizer_of(given["processor"])
        if needs_ids(tokenizer):
            turn_ids(tokenizer)  # refused here what would fail for every conversation
        given["render_endpoint"] = Local(tokenizer)
    return wrapped(*bound.args, **bound.kwargs)


DRIFT = Drift(
    id="conversations_without_server",
    title="Conversations are tokenised by the tokenizer where no server is named, by the release's own rule",
    symptom="ValueError: render_endpoint is required to convert natural-language conversations",
    call_site="data_generation/preprocessing.py:build_speculator_training_dataset",
    speculators=">=0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.9.0/src/speculators/data_generation/preprocessing.py#L244",
    tripwire=PREPARE,
    sites=(around_batch("conversations_without_server/1", _batch), wrap(BUILD, _build)),
)
