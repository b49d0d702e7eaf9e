"""Rows that are tokenised already cannot be handed over: only a column of conversations is read."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..drift import Drift
from ._preparation import Batch, Rows, around_batch, column
from ._training import PREPARE, PREPROCESSING

log = logging.getLogger("speculators_compat")

COLUMNS = ("input_ids", "loss_mask")


def _pass_through(wrapped: Any, call: Batch) -> Any:
    examples = call["examples"]
    if not set(COLUMNS) & examples.keys():
        return wrapped(**call)
    given = [row for row, ids in enumerate(column(examples, "input_ids")) if ids is not None]
    others = [row for row, turns in enumerate(column(examples, "conversations")) if turns and row not in set(given)]
    rows = Rows(call, wrapped(**{**_with_pattern(call), "examples": _select(examples, others)}) if others else None)
    # Up to 0.7 truncated_samples cuts all rows.
    is_last = "render_endpoint" in call
    length = call["max_length"] if is_last else sys.maxsize
    for row in given:
        ids, mask = (column(examples, name)[row] for name in COLUMNS)
        problem = _problem(ids, mask)
        if is_last and not problem and not any(mask[:length]):
            problem = "no trainable token"  # which 0.8 and later leave out
        problem = problem or rows.add(ids[:length], mask[:length])
        if problem:
            log.warning("Conversation %d is dropped: %s", row, problem)
        elif len(ids) > length:
            log.warning("Sample %d is cut from %d to %d tokens.", row, len(ids), length)
    return rows.results


def _with_pattern(call: Batch) -> Batch:
    """0.7 looks for no pattern where there are rows of ids, so conversations beside them lack theirs."""
    module = sys.modules[PREPROCESSING]
    processor = call.get("processor", call.get("tokenizer"))
    if call.get("assistant_pattern", "") is not None or module._supports_assistant_mask(processor):
        return call
    return {**call, "assistant_pattern": module._detect_assistant_pattern(processor)}


def _select(examples: Batch, rows: list[int]) -> Batch:
    return {name: [values[row] for row in rows] for name, values in examples.items() if name not in COLUMNS}


def _problem(ids: list[Any], mask: list[Any] | None) -> str:
    """What is wrong with a row; nothing if it is fine."""
    if mask is None or len(ids) != len(mask):
        return f"input_ids has {len(ids)} entries, loss_mask {len(mask or ())}"
    if any(not isinstance(token, int) or token < 0 for token in ids):
        return "input_ids must be integers of 0 or more"
    if any(weight not in (0, 1) for weight in mask):
        return "loss_mask must hold 0 and 1 only"
    return ""


DRIFT = Drift(
    id="tokenised_rows",
    title="Rows of input_ids and loss_mask pass through preparation unchanged",
    symptom="No conversations key found. Keys: ['input_ids', 'loss_mask']",
    call_site="data_generation/preprocessing.py:_preprocess_batch",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L190",
    tripwire=PREPARE,
    # Around slow_tokenizer_mask and conversations_without_server, which know conversations only: drifts apply in the
    # order of their ids.
    sites=(around_batch("tokenised_rows/1", _pass_through),),
)
