"""speculators 0.4 forgets the length limit where the template marks assistant tokens."""

from __future__ import annotations

from typing import Any

from ..drift import Drift
from ._preparation import around_batch
from ._training import BUILD_DATASET


def _cut(wrapped: Any, examples: Any, tokenizer: Any, max_length: int, *args: Any, **kwargs: Any) -> Any:
    results = wrapped(examples, tokenizer, max_length, *args, **kwargs)
    return {column: [row[:max_length] for row in rows] for column, rows in results.items()}


DRIFT = Drift(
    id="assistant_mask_truncation",
    title="Samples are cut to the length limit on every path",
    symptom="no error: samples stay longer than the limit if the template has generation blocks",
    silent=True,
    call_site="data_generation/preprocessing.py:_preprocess_batch",
    speculators=">=0.4.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/data_generation/preprocessing.py#L278",
    tripwire=BUILD_DATASET,
    sites=(around_batch("assistant_mask_truncation/1", _cut),),
)
