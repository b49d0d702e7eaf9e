"""Step 4: the draft, by speculators' own model and trainer of whichever release is installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..drift import UsageError
from ..sample_files import installed_form
from ..store import Manifest, SampleStore
from . import train_from_files, train_from_parts, train_on_rows
from .checkpoints import check_checkpoints, complete_epochs, epochs
from .config import RunConfig
from .prepare import load_rows
from .splits import split, splits
from .summary import read_step, recorded_step
from .train_metrics import METRICS, listening, result, validations
from .train_options import EAGLE3, known_options
from .trainers import has_command, installed_release, trains_on_rows
from .training_run import TrainingRun, batch_sampler
from .verifier import Verifier, check_run

__all__ = ["METRICS", "check", "complete_epochs", "run", "split"]

log = logging.getLogger(__name__)


def run(config: RunConfig) -> None:
    """Train the draft, in this process or, under torchrun, as one rank.

    Args:
        config: The run.

    Raises:
        UsageError: Samples or vocabulary are missing or do not fit, there are too few samples to
            split or to give every process a batch, or checkpoints are in the way.
        KeyboardInterrupt: The trainer was interrupted, whether or not it says so itself.
    """
    checked = check(config)
    check_checkpoints(config)
    if not _left(config) and read_step(config, "train"):
        log.info("all %d epochs are in %s", config.train.epochs, config.checkpoint_dir)
        return
    if has_command():
        _run_on_rows(checked)
    else:
        _run_from_parts(checked)


def _run_on_rows(checked: TrainingRun) -> None:
    """The whole of upstream's own command."""
    config = checked.config
    settings = train_on_rows.trainer_config(checked)
    if int(os.environ.get("RANK", "0")):
        train_on_rows.train(settings)
        return
    with recorded_step(config, "train") as report:
        with _finished(config):
            train_on_rows.train(settings)
        report.update(result(config), **_said(checked, settings.flatten()))


def _run_from_parts(checked: TrainingRun) -> None:
    """Upstream's parts, put together here."""
    config = checked.config
    kind = train_from_parts if trains_on_rows() else train_from_files
    with kind.process() as ranks:
        if ranks[-1]:
            kind.train(checked, ranks)
            return
        with recorded_step(config, "train") as report, listening(config):
            if trains_on_rows():
                with _finished(config):
                    kind.train(checked, ranks)
                report.update(_said(checked, train_from_parts.in_force(checked)))
            else:
                kind.train(checked, ranks)
            report.update(result(config))


def _left(config: RunConfig) -> bool:
    """Whether an epoch is left to train."""
    return not epochs(config)[-1:] >= [config.train.epochs - 1]


@contextmanager
def _finished(config: RunConfig) -> Iterator[None]:
    """Training that must come to its end.

    From speculators 0.6 on an interrupted trainer saves what it has and returns as if it had finished; what it leaves
    out is the last epoch's validation, of which an earlier run may have left one.
    https://github.com/vllm-project/speculators/blob/v0.6.0/src/speculators/train/graceful_shutdown.py

    Args:
        config: The run.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    last, left = config.train.epochs - 1, _left(config)
    before = validations(config)[last] if epochs(config) else 0  # without a checkpoint the metrics begin anew
    yield
    if left and validations(config)[last] <= before:
        log.warning("Training was interrupted. Repeat the step to go on from the last complete checkpoint.")
        raise KeyboardInterrupt


def _said(checked: TrainingRun, in_force: dict[str, Any]) -> dict[str, Any]:
    """What the report says of a release whose defaults are its own.

    Args:
        checked: The run.
        in_force: Every setting of the trainer, by upstream's name.
    """
    algorithm = checked.config.train.algorithm
    known = known_options(algorithm)
    settings = {name: value for name, value in in_force.items() if name in known}
    if algorithm == EAGLE3:
        settings.pop("mask_token_id", None)
    training, validation = checked.splits
    return {
        "algorithm": algorithm,
        "split": {"train": [training[0], training[-1]], "validation": [validation[0], validation[-1]]},
        "trainer": {"speculators": installed_release(), **settings},
    }


def check(config: RunConfig) -> TrainingRun:
    """Everything that can be refused before a process starts to train; nothing is changed.

    Args:
        config: The run.

    Returns:
        The run with its verifier, the tokens of each sample, the vocabulary, and the indices of both splits.

    Raises:
        UsageError: Algorithm, options, samples or vocabulary are missing or do not fit, or there are too few samples to
            split or to give every process a batch.
    """
    verifier = check_run(config)
    files, lengths = _samples(config, verifier)
    checked = TrainingRun(config, verifier, _vocab(config, verifier.vocab_size), lengths, splits(config, files))
    if trains_on_rows():
        processes = int(os.environ.get("WORLD_SIZE", config.train.num_processes))
        for indices in checked.splits:
            batch_sampler(config, [lengths[index] for index in indices], processes, 0)
    return checked


def _samples(config: RunConfig, verifier: Verifier) -> tuple[list[int], dict[int, int]]:
    """Indices and tokens of the extracted samples, once they are known to be this configuration's."""
    store = SampleStore.open(config.data_dir)
    _check_manifest(config, verifier, store.manifest)
    if trains_on_rows():
        _check_rows(config, store.manifest)
    lengths = store.lengths()
    if len(lengths) < store.manifest.num_samples:
        raise UsageError(
            "Every sample must be there before training starts.",
            f"{len(lengths)} of {store.manifest.num_samples} readable in {config.data_dir}",
            "Run the extract step again: it fills in what is missing.",
        )
    return list(lengths), lengths


def _check_rows(config: RunConfig, manifest: Manifest) -> None:
    """From 0.5 on ids and masks come from the prepared rows: they must be those that the states were extracted from."""
    _, found = load_rows(config)
    if found != manifest.dataset_fingerprint:
        raise UsageError(
            f"The samples in {config.data_dir} must be of the rows in {config.prepared_dir}.",
            "other rows, or other masks, than they were extracted from",
            "Extract into another output folder, or prepare the rows again as they were.",
        )


def _check_manifest(config: RunConfig, verifier: Verifier, manifest: Manifest) -> None:
    """Refuse states of another verifier, other layers or other rows: nothing would fail, the draft would be wrong."""
    expected = {
        "model": config.verifier,
        "layer_ids": verifier.layer_ids,
        "seed": config.seed,
        "seq_length": config.seq_length,
        "form": installed_form(),
    }
    different = [name for name, value in expected.items() if getattr(manifest, name) != value]
    if different:
        raise UsageError(
            f"The samples in {config.data_dir} must be this configuration's.",
            "; ".join(f"{name}: {getattr(manifest, name)!r} there, {expected[name]!r} now" for name in different),
            "Go back to the settings that they were extracted with, or extract into another output folder; "
            "`speculators-compat export` and `import` change the form.",
        )


def _vocab(config: RunConfig, target_vocab_size: int) -> tuple[Any, Any]:
    """``t2d`` (bool [target vocabulary]) and ``d2t`` (int64 [draft vocabulary]) as tensors."""
    import numpy as np
    import torch

    names = ("t2d", "d2t")
    missing = [name for name in names if not (config.vocab_dir / f"{name}.npy").exists()]
    if missing:
        raise UsageError(
            "Training needs the vocabulary.",
            f"no {missing} in {config.vocab_dir}",
            "Run the vocab step.",
        )
    t2d, d2t = (torch.from_numpy(np.load(config.vocab_dir / f"{name}.npy")) for name in names)
    size = config.vocab.draft_vocab_size
    # The draft ids that d2t names must be the ones that t2d marks, or logits and tokens mean
    # different things.
    chosen = torch.arange(len(d2t)) + d2t
    if len(d2t) != size or len(t2d) != target_vocab_size or not torch.equal(chosen, t2d.nonzero().flatten()):
        raise UsageError(
            "t2d.npy and d2t.npy must be of this configuration's vocabulary.",
            f"{len(d2t)} draft and {len(t2d)} target tokens, expected {size} and "
            f"{target_vocab_size}, or the two disagree",
            "Run the vocab step again.",
        )
    return t2d, d2t
