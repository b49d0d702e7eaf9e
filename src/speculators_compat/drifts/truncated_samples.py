"""Samples that are too long are cut without a word; 0.4 forgets the limit where the template marks assistant tokens."""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..drift import Drift
from ._preparation import around_batch
from ._training import BUILD_DATASET

log = logging.getLogger("speculators_compat")


def _cut(wrapped: Any, examples: Any, tokenizer: Any, max_length: int, *args: Any, **kwargs: Any) -> Any:
    # The whole sample is asked for: nothing else tells a sample that was cut from one that just fits.
    results = wrapped(examples, tokenizer, sys.maxsize, *args, **kwargs)
    for index, row in enumerate(results["input_ids"]):
        if len(row) > max_length:
            log.warning("Sample %d is cut from %d to %d tokens.", index, len(row), max_length)
    return {column: [row[:max_length] for row in rows] for column, rows in results.items()}


DRIFT = Drift(
    id="truncated_samples",
    title="Samples are cut to the length limit on every path, and each cut is logged",
    symptom="no error: samples are cut unseen, or stay longer than the limit if the template has generation blocks",
    silent=True,
    call_site="data_generation/preprocessing.py:_preprocess_batch",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/data_generation/preprocessing.py#L278",
    tripwire=BUILD_DATASET,
    # Around slow_tokenizer_mask and tokenised_rows, which do not cut: drifts apply in the order of their ids.
    sites=(around_batch("truncated_samples/1", _cut),),
)
