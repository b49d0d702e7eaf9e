"""A small run that is ready to train beside speculators 0.5 and later, made once for all drifts of training."""

from __future__ import annotations

import json
from typing import Any

from speculators_compat.pipeline import train
from tests.support import shim
from tests.training_runs import with_training


def trained(run: Any, output: Any, without: str = "", again: int = 0, **fields: Any) -> dict[str, Any]:
    """Train in another folder; gives the step's report.

    Args:
        run: The prepared run.
        output: New folder.
        without: Drifts that are off.
        again: Train first without anything off, then resume up to this many epochs.
        **fields: Of the section ``train``.
    """
    config = with_training(run, output, **fields)
    if again:
        with shim():
            train.run(config)
        raw = config.model_dump(mode="json", exclude_unset=True)
        config = type(config).model_validate({**raw, "train": {**raw["train"], "epochs": again}})
    with shim(without=without):
        train.run(config)
    report: dict[str, Any] = json.loads((config.steps_dir / "train.json").read_text())
    return report
