"""The checkpoints of a run: which are complete, what they were trained from, and whether a run may go on from them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..store import SampleStore, write_json
from .config import RunConfig
from .train_options import HARMLESS
from .trainers import installed_release, trains_on_rows

__all__ = ["INPUTS", "check_checkpoints", "complete_epochs", "epochs"]

INPUTS = "training.json"
log = logging.getLogger(__name__)


def check_checkpoints(config: RunConfig) -> None:
    """Set incomplete checkpoints aside, which upstream would resume from; overwrite none.

    Args:
        config: The run.

    Raises:
        UsageError: There are checkpoints of other data or of another draft, or any where none may be.
    """
    if int(os.environ.get("RANK", "0")):
        return
    folders = {epoch: config.checkpoint_dir / str(epoch) for epoch in epochs(config)}
    complete = [epoch for epoch, folder in folders.items() if _is_complete(config, folder)]
    _check_inputs(config, bool(complete))
    if complete and not config.train.resume:
        raise UsageError(
            "Without train.resume a training run starts with no checkpoints.",
            f"epochs {complete} in {config.checkpoint_dir}",
            "Set train.resume: true, use another output folder, or delete them.",
        )
    # Only after every check: what is refused changes nothing.
    for epoch in folders.keys() - set(complete):
        _set_aside(folders[epoch])


def complete_epochs(config: RunConfig) -> list[int]:
    """Epochs whose checkpoint has all its files.

    Args:
        config: The run.
    """
    return [epoch for epoch in epochs(config) if _is_complete(config, config.checkpoint_dir / str(epoch))]


def _is_complete(config: RunConfig, folder: Path) -> bool:
    """Whether a checkpoint has all its files; a large draft's weights are sharded (transformers' save_pretrained)."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        weights = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        weights = ["model.safetensors"]
    return all((folder / name).exists() for name in [*_expected(config), *weights])


def _set_aside(folder: Path) -> None:
    """Rename an incomplete checkpoint to a free name; nothing is deleted."""
    number = 0
    while (aside := folder.with_name(f"{folder.name}.incomplete{number or ''}")).exists():
        number += 1
    folder.rename(aside)
    log.warning("%s is incomplete, moved to %s", folder, aside)


def _check_inputs(config: RunConfig, resuming: bool) -> None:
    """Record what the weights' meaning depends on; refuse to resume with anything else."""
    path = config.checkpoint_dir / INPUTS
    vocab = hashlib.sha256((config.vocab_dir / "d2t.npy").read_bytes()).hexdigest()
    manifest = SampleStore.open(config.data_dir).manifest
    inputs = {
        "model": manifest.model,
        "layer_ids": manifest.layer_ids,
        "dataset_fingerprint": manifest.dataset_fingerprint,
        "vocabulary_sha256": vocab,
        "draft": config.train.draft.model_dump(mode="json"),
        "total_seq_len": config.total_seq_len,
        "train_ratio": config.train.train_ratio,
        "seed": config.seed,
        **_newer_inputs(config),
    }
    if not resuming:
        write_json(path, inputs)
        return
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    different = [key for key, value in inputs.items() if recorded.get(key) != value]
    if different:
        raise UsageError(
            f"The checkpoints in {config.checkpoint_dir} must come from this draft and data.",
            "; ".join(f"{key}: {recorded.get(key)!r} there, {inputs[key]!r} now" for key in different),
            "Use another output folder, or go back to the earlier settings. Nothing was changed.",
        )


def _newer_inputs(config: RunConfig) -> dict[str, Any]:
    """What can differ from speculators 0.5 on; the records of older releases stay as they are."""
    if not trains_on_rows():
        return {}
    return {
        "split": "first rows",
        "speculators": installed_release(),  # its defaults and its optimizer's state are its own
        "algorithm": config.train.algorithm,
        "options": {name: value for name, value in sorted(config.train.options.items()) if name not in HARMLESS},
    }


def _expected(config: RunConfig) -> list[str]:
    """Files of a complete checkpoint; the scheduler's is the last that the trainer writes."""
    names = ["config.json", "optimizer_state_dict.pt"]
    return names if config.train.scheduler == "none" else [*names, "scheduler_state_dict.pt"]


def epochs(config: RunConfig) -> list[int]:
    """Epochs that have a checkpoint, complete or not, ascending.

    Args:
        config: The run.
    """
    if not config.checkpoint_dir.is_dir():
        return []
    return sorted(int(folder.name) for folder in config.checkpoint_dir.iterdir() if folder.name.isdigit())
