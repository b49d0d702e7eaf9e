"""speculators 0.7 moved the set-up of distributed training from ``train.utils`` to ``train.distributed``."""

from __future__ import annotations

import importlib
import os
from typing import Any

from ..drift import Drift
from ._moved import found_in, old_names
from ._training import UTILS

NEW = "speculators.train.distributed"


def _set_up() -> Any:
    def maybe_setup_distributed() -> tuple[int, int, int, bool]:
        """Local rank, world size, rank and whether it is distributed, which the new function keeps to its module."""
        new = importlib.import_module(NEW)
        new.maybe_setup_distributed()
        return new.get_local_rank(), new.get_world_size(), new.get_rank(), new.is_distributed()

    return maybe_setup_distributed


FINDERS = {
    "maybe_setup_distributed": _set_up,
    "maybe_destroy_distributed": found_in(NEW, name="maybe_destroy_distributed"),
    "apply_fully_sharded": found_in(NEW, name="apply_fully_sharded"),
    # These three were values, read from what torchrun sets.
    "local_rank": lambda: int(os.environ.get("LOCAL_RANK", "0")),
    "world_size": lambda: int(os.environ.get("WORLD_SIZE", "1")),
    "is_distributed": lambda: "LOCAL_RANK" in os.environ,
}


DRIFT = Drift(
    id="training_setup_names",
    title="The set-up of distributed training is found under its old names",
    symptom="ImportError: cannot import name 'maybe_setup_distributed' from 'speculators.train.utils'",
    call_site="train/utils.py",
    speculators=">=0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/distributed.py",
    tripwire=f"{UTILS}:maybe_setup_distributed",
    sites=(old_names(UTILS, FINDERS),),
)
