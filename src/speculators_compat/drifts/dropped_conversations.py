"""Conversations that cannot be prepared disappear without a count."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..calls import accepts
from ..drift import Drift, UsageError, wrap
from ._training import BUILD_DATASET, PREPROCESSING

log = logging.getLogger("speculators_compat")


def _count(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def given(dataset: Any, *rest: Any, **options: Any) -> Any:
        return dataset

    raw = given(*args, **kwargs)
    check_columns(raw)
    prepared = wrapped(*args, **kwargs)
    dropped = len(raw) - len(prepared)
    if not len(prepared) and not accepts(sys.modules[PREPROCESSING].load_and_preprocess_dataset, "allow_empty_output"):
        raise _nothing_left(raw)
    if dropped:
        log.warning(
            "%d of %d conversations were dropped in preparation; the reasons are logged above.",
            dropped,
            len(raw),
        )
    if not len(prepared):  # 0.7 asks the caller whether that is meant (allow_empty_output), and refuses it if not
        return prepared
    empty = sum(1 for mask in prepared.with_format("numpy")["loss_mask"] if not mask.any())
    if empty:
        log.warning(
            "%d of %d samples have no token to train on: no assistant turn, or it lies past the length limit.",
            empty,
            len(prepared),
        )
    return prepared


def check_columns(raw: Any) -> None:
    """Refuse rows that hold nothing which can be prepared.

    Args:
        raw: A data set of the datasets library.

    Raises:
        UsageError: Neither conversations nor token ids are there.
    """
    if len(raw) and not {"conversations", "input_ids"} & set(raw.column_names):
        raise UsageError(
            required="Each row must have 'conversations' (a list of turns), or 'input_ids' and 'loss_mask'.",
            found=f"columns {', '.join(raw.column_names)}",
            way_out="Rename the column, or name a data set that speculators knows.",
        )


def _nothing_left(raw: Any) -> UsageError:
    return UsageError(
        required="At least one conversation must survive preparation.",
        found=f"{len(raw)} conversations, all dropped",
        way_out=("The log above gives the reason for each; the turns need 'from'/'value' or 'role'/'content'."),
    )


DRIFT = Drift(
    id="dropped_conversations",
    title="Dropped conversations are counted; an empty data set is refused",
    symptom="IndexError: Invalid key: 0 is out of bounds for size 0",
    call_site="data_generation/preprocessing.py:build_eagle3_dataset",
    speculators=">=0.3.0,<0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L402",
    tripwire=BUILD_DATASET,
    sites=(wrap(BUILD_DATASET, _count),),
)
