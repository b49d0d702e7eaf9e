"""A token_freq.pt that is there already is kept, whatever data set it was counted on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..drift import Drift, wrap
from ._training import PREPARE, PREPROCESSING

log = logging.getLogger("speculators_compat")


def _count_again(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def save(dataset: Any, output_path: str = "./token_freq.pt") -> str:
        path = Path(output_path)
        if path.exists():
            log.warning("%s is counted again: the counts that were there may belong to other data.", path)
        # Counted beside the old file, so that a run that is interrupted leaves no half-written
        # counts.
        fresh = path.with_name(f".{path.name}.new")
        fresh.unlink(missing_ok=True)
        wrapped(dataset=dataset, output_path=str(fresh))
        fresh.replace(path)
        return output_path

    return save(*args, **kwargs)


DRIFT = Drift(
    id="stale_token_frequencies",
    title="Token frequencies are counted on the data at hand",
    symptom="no error: counts of other data decide the draft's vocabulary",
    silent=True,
    call_site="data_generation/preprocessing.py:load_and_preprocess_dataset",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/vocab_mapping.py#L30",
    tripwire=PREPARE,
    sites=(wrap(f"{PREPROCESSING}:save_token_frequency_distribution", _count_again),),
)
