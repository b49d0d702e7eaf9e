"""Step 4: the draft, by speculators' ``Eagle3DraftModel`` and ``Trainer``."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..store import SampleStore, write_json
from .config import RunConfig
from .draft import draft_config
from .summary import read_step, recorded_step
from .verifier import check_run

__all__ = ["METRICS", "check", "complete_epochs", "run", "split"]

METRICS = "train_metrics.jsonl"
INPUTS = "training.json"
log = logging.getLogger(__name__)


def run(config: RunConfig) -> None:
    """Train the draft, in this process or, under torchrun, as one rank.

    Args:
        config: The run.

    Raises:
        UsageError: Samples or vocabulary are missing or do not fit, there are too few samples to
            split or to give every process a batch, or checkpoints are in the way.
    """
    verifier, lengths, vocab, splits = check(config)
    _check_checkpoints(config)
    if _epochs(config)[-1:] >= [config.train.epochs - 1] and read_step(config, "train"):
        log.info("all %d epochs are in %s", config.train.epochs, config.checkpoint_dir)
        return
    from speculators.train.logger import setup_root_logger
    from speculators.train.utils import maybe_destroy_distributed, maybe_setup_distributed

    setup_root_logger()
    local_rank, world_size, rank, is_distributed = maybe_setup_distributed()

    def train() -> None:
        _train(config, verifier, vocab, splits, lengths, (local_rank, world_size, rank))

    try:
        if rank:
            train()
            return
        with recorded_step(config, "train") as report, _metrics(config):
            train()
            report.update(_result(config))
    finally:
        if is_distributed:
            maybe_destroy_distributed()


def check(config: RunConfig) -> tuple[Any, dict[int, int], tuple[Any, Any], tuple[list[int], list[int]]]:
    """Everything that can be refused before a process starts to train; nothing is changed.

    Args:
        config: The run.

    Returns:
        The verifier, tokens of each sample, ``t2d`` and ``d2t``, and the indices of both splits.

    Raises:
        UsageError: Samples or vocabulary are missing or do not fit, or there are too few samples to split.
    """
    verifier = check_run(config)
    files, lengths = _samples(config, verifier)
    vocab = _vocab(config, verifier.vocab_size)
    return verifier, lengths, vocab, split(files, config.train.train_ratio, config.seed)


def split(files: list[int], ratio: float, seed: int) -> tuple[list[int], list[int]]:
    """Split sample indices into training and validation.

    By index and not by the order in which a file system lists names, so that every rank on every
    node splits alike.

    Args:
        files: Indices of the samples.
        ratio: Share of the training split.
        seed: Seed of the shuffle.

    Returns:
        Training and validation indices, disjoint, both non-empty.

    Raises:
        UsageError: There are too few samples for both.
    """
    shuffled = sorted(files)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 (not for secrets)
    size = int(len(shuffled) * ratio)
    if not 0 < size < len(shuffled):
        raise UsageError(
            "Training and validation need at least one sample each.",
            f"{len(shuffled)} samples, train_ratio {ratio}",
            "Prepare more data, or change train.train_ratio.",
        )
    return shuffled[:size], shuffled[size:]


def _samples(config: RunConfig, verifier: Any) -> tuple[list[int], dict[int, int]]:
    """Indices and tokens of the extracted samples, once they are known to be this configuration's."""
    store = SampleStore.open(config.data_dir)
    _check_manifest(config, verifier, store.manifest)
    lengths = store.lengths()
    if len(lengths) < store.manifest.num_samples:
        raise UsageError(
            "Every sample must be there before training starts.",
            f"{len(lengths)} of {store.manifest.num_samples} readable in {config.data_dir}",
            "Run the extract step again: it fills in what is missing.",
        )
    return list(lengths), lengths


def _check_manifest(config: RunConfig, verifier: Any, manifest: Any) -> None:
    """Refuse states of another verifier, other layers or other rows: nothing would fail, the draft would be wrong."""
    expected = {
        "model": config.verifier,
        "layer_ids": verifier.layer_ids,
        "seed": config.seed,
        "seq_length": config.seq_length,
    }
    different = [name for name, value in expected.items() if getattr(manifest, name) != value]
    if different:
        raise UsageError(
            f"The samples in {config.data_dir} must be this configuration's.",
            "; ".join(f"{name}: {getattr(manifest, name)!r} there, {expected[name]!r} now" for name in different),
            "Go back to the settings that they were extracted with, or extract into another output folder.",
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


def _check_checkpoints(config: RunConfig) -> None:
    """Set incomplete checkpoints aside, which upstream would resume from; overwrite none."""
    if int(os.environ.get("RANK", "0")):
        return
    folders = {epoch: config.checkpoint_dir / str(epoch) for epoch in _epochs(config)}
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
    return [epoch for epoch in _epochs(config) if _is_complete(config, config.checkpoint_dir / str(epoch))]


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


def _expected(config: RunConfig) -> list[str]:
    """Files of a complete checkpoint; the scheduler's is the last that the trainer writes."""
    names = ["config.json", "optimizer_state_dict.pt"]
    return names if config.train.scheduler == "none" else [*names, "scheduler_state_dict.pt"]


def _epochs(config: RunConfig) -> list[int]:
    if not config.checkpoint_dir.is_dir():
        return []
    return sorted(int(folder.name) for folder in config.checkpoint_dir.iterdir() if folder.name.isdigit())


def _train(
    config: RunConfig,
    verifier: Any,
    vocab: tuple[Any, Any],
    files: tuple[list[int], list[int]],
    lengths: dict[int, int],
    ranks: tuple[int, int, int],
) -> None:
    import torch
    from speculators.models.eagle3 import Eagle3DraftModel
    from speculators.train.trainer import Trainer, TrainerConfig

    torch.manual_seed(config.seed)
    section = config.train
    local_rank, world_size, rank = ranks
    t2d, d2t = vocab
    model = Eagle3DraftModel(config=draft_config(config, verifier), t2d=t2d, d2t=d2t)
    loaders = [
        _loader(config, indices, lengths, world_size, rank, noisy)
        for indices, noisy in zip(files, (True, False), strict=True)
    ]
    steps = {"ttt_steps": section.ttt_steps, "ttt_step_loss_decay": section.ttt_step_loss_decay}
    trainer_config = TrainerConfig(
        lr=section.lr,
        num_epochs=section.epochs,
        save_path=str(config.checkpoint_dir),
        resume_from_checkpoint=section.resume and bool(_epochs(config)),
        is_distributed=world_size > 1 or "LOCAL_RANK" in os.environ,
        local_rank=local_rank,
        train_call_kwargs={**steps, "use_off_policy_tokens": section.use_off_policy_tokens},
        val_call_kwargs={**steps, "use_off_policy_tokens": False},
        scheduler_type=section.scheduler,
        scheduler_warmup_steps=section.warmup_steps,
    )
    Trainer(model, trainer_config, *loaders).run_training()


def _loader(
    config: RunConfig,
    indices: list[int],
    lengths: dict[int, int],
    world_size: int,
    rank: int,
    noisy: bool,
) -> Any:
    """Packed batches of one split for one rank."""
    import torch
    from speculators.train.data import Eagle3SampleFileDataset, create_collate_fn
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
    from speculators.train.noise_transforms import AddUniformNoise
    from torch.utils.data import DataLoader

    noise = AddUniformNoise(std=config.train.noise_std, tensors=("hidden_states",)) if noisy else None
    dataset = Eagle3SampleFileDataset(
        max_len=config.total_seq_len,
        file_list=[str(config.data_dir / f"data_{index}.pt") for index in indices],
        transform=noise if config.train.noise_std else None,
    )
    sampler = MultipackDistributedBatchSamplerV2(
        batch_max_length=config.total_seq_len,
        # The data set drops each sample's first position; its own lengths are guesses on 0.3.0, one
        # too long on 0.4.
        lengths=[lengths[index] - 1 for index in indices],
        num_replicas=world_size,
        rank=rank,  # of all nodes: with the local rank every node would train on the same data
        seed=config.seed,
    )
    if not len(sampler):
        raise UsageError(
            "Every training process needs at least one batch in each split.",
            f"{len(indices)} samples for {world_size} processes of {config.total_seq_len} tokens",
            "Prepare more data, or lower train.total_seq_len or train.num_processes.",
        )
    workers = config.train.num_workers
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=workers,
        prefetch_factor=config.train.prefetch_factor if workers else None,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        collate_fn=create_collate_fn(config.total_seq_len),
    )


class _MetricsFile(logging.Handler):
    """Appends every metrics record of speculators' trainer to a JSON-lines file."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self.file = path.open("a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Mapping):
            line = {"step": getattr(record, "step", None), **record.msg}
            self.file.write(json.dumps(line, default=float) + "\n")
            self.file.flush()
            if "val" in line:
                log.info("epoch %s: validation loss %.3f", line.get("epoch"), line["val"]["loss_epoch"])

    def close(self) -> None:
        self.file.close()
        super().close()


@contextmanager
def _metrics(config: RunConfig) -> Iterator[None]:
    """Keep what the trainer logs to "speculators.metrics"."""
    path = config.output / METRICS
    if not _epochs(config):
        path.unlink(missing_ok=True)
    logger = logging.getLogger("speculators.metrics")
    handler = _MetricsFile(path)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate, propagated = (
        False,
        logger.propagate,
    )  # a record of a dozen figures for each step
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
        handler.close()


def _result(config: RunConfig) -> dict[str, Any]:
    """First and last loss, from the metrics file, and the newest checkpoint."""
    lines = [json.loads(line) for line in (config.output / METRICS).read_text(encoding="utf-8").splitlines()]
    losses = [line["train"]["loss"] for line in lines if "train" in line]
    validation = [line["val"]["loss_epoch"] for line in lines if "val" in line]
    epochs = _epochs(config)
    return {
        "steps": len(losses),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "first_validation_loss": validation[0] if validation else None,
        "last_validation_loss": validation[-1] if validation else None,
        "checkpoint": str(config.checkpoint_dir / str(epochs[-1])) if epochs else None,
    }
