"""speculators 0.5's new data set cannot be read as a whole: the index of its first file is set for a split alone."""

from __future__ import annotations

from ..drift import Drift, supply
from ._training import DATA

DRIFT = Drift(
    id="arrow_whole_split",
    title="A prepared data set can be read without a split",
    symptom="AttributeError: 'ArrowDataset' object has no attribute 'start_file_idx'",
    call_site="train/data.py:ArrowDataset._map_to_file_idx",
    speculators=">=0.5,<0.6",
    # Bound to speculators, not to vLLM.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py#L224",
    tripwire=f"{DATA}:ArrowDataset.__init__",
    # A value of the class: an instance that is split has its own.
    sites=(supply(f"{DATA}:ArrowDataset.start_file_idx", lambda _: 0),),
)
