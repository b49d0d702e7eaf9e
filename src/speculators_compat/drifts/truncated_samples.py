"""Samples that are too long are cut without a word; 0.4 forgets the limit where the template marks assistant tokens."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..drift import Drift
from ._preparation import Batch, around_batch
from ._training import BUILD_DATASET

log = logging.getLogger("speculators_compat")


def _cut(wrapped: Any, call: Batch) -> Any:
    length = call["max_length"]
    # The whole sample is asked for: nothing else tells a sample that was cut from one that just fits.
    results = wrapped(**{**call, "max_length": sys.maxsize})
    kept = [index for index, _ in enumerate(results["input_ids"]) if _is_kept(index, results, call)]
    cut = {column: [results[column][index][:length] for index in kept] for column in ("input_ids", "loss_mask")}
    others = {column: [rows[index] for index in kept] for column, rows in results.items() if column not in cut}
    if "seq_len" in others:
        others["seq_len"] = [len(ids) for ids in cut["input_ids"]]
    return {**cut, **others}


def _is_kept(index: int, results: Batch, call: Batch) -> bool:
    """Whether enough is left to train on, as ``minimum_valid_tokens`` (0.5 and later) asks; says what is cut."""
    found, length = len(results["input_ids"][index]), call["max_length"]
    if found <= length:
        return True
    if int(results["loss_mask"][index][:length].sum()) < (call.get("minimum_valid_tokens") or 0):
        log.warning("Conversation %d is dropped: too few trainable tokens in its first %d", index, length)
        return False
    log.warning("Sample %d is cut from %d to %d tokens.", index, found, length)
    return True


DRIFT = Drift(
    id="truncated_samples",
    title="Samples are cut to the length limit on every path, and each cut is logged",
    symptom="no error: samples are cut unseen, or stay longer than the limit if the template has generation blocks",
    silent=True,
    call_site="data_generation/preprocessing.py:_preprocess_batch",
    speculators=">=0.3.0,<0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/data_generation/preprocessing.py#L278",
    tripwire=BUILD_DATASET,
    # Around slow_tokenizer_mask and tokenised_rows, which do not cut: drifts apply in the order of their ids.
    sites=(around_batch("truncated_samples/1", _cut),),
)
