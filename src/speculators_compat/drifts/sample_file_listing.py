"""Every file that ends in "pt" is taken for a training sample, in the order of the file system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..drift import Drift, wrap
from ._training import DATA, DATASET_INIT

NOT_SAMPLES = frozenset({"token_freq.pt", "optimizer_state_dict.pt", "scheduler_state_dict.pt"})
"""What speculators' own scripts and trainer write beside samples."""


def _samples(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # Sorted, because the split into training and validation shuffles with a fixed seed and must not
    # depend on the order in which a file system lists a folder: ranks on several nodes would train
    # on each other's validation set.
    files = wrapped(*args, **kwargs)
    return sorted(file for file in files if Path(file).suffix == ".pt" and Path(file).name not in NOT_SAMPLES)


DRIFT = Drift(
    id="sample_file_listing",
    title="Only samples are listed, in one order everywhere",
    symptom="KeyError: 'hidden_states'",
    call_site="train/data.py:list_files",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream=("https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/data.py#L18"),
    tripwire=DATASET_INIT,
    sites=(wrap(f"{DATA}:list_files", _samples),),
)
