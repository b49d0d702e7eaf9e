"""Rows that are tokenised already cannot be handed over: only a column of conversations is read."""

from __future__ import annotations

import logging
from typing import Any

from ..drift import Drift
from ._preparation import Batch, around_batch, column
from ._training import BUILD_DATASET

log = logging.getLogger("speculators_compat")

COLUMNS = ("input_ids", "loss_mask")


def _pass_through(wrapped: Any, examples: Batch, *args: Any, **kwargs: Any) -> Any:
    if not set(COLUMNS) & examples.keys():
        return wrapped(examples, *args, **kwargs)
    given = [row for row, ids in enumerate(column(examples, "input_ids")) if ids is not None]
    others = [row for row, turns in enumerate(column(examples, "conversations")) if turns and row not in set(given)]
    results = wrapped(_select(examples, others), *args, **kwargs) if others else {name: [] for name in COLUMNS}
    import torch

    for row in given:
        ids, mask = (column(examples, name)[row] for name in COLUMNS)
        problem = _problem(ids, mask)
        if problem:
            log.warning("Conversation %d is dropped: %s", row, problem)
            continue
        results["input_ids"].append(torch.tensor(ids, dtype=torch.long))
        results["loss_mask"].append(torch.tensor(mask, dtype=torch.long))
    return results


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
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L190",
    tripwire=BUILD_DATASET,
    # Around slow_tokenizer_mask, which knows conversations only: drifts apply in the order of their ids.
    sites=(around_batch("tokenised_rows/1", _pass_through),),
)
