"""Training by speculators 0.3 and 0.4: ``Eagle3DraftModel`` and ``Trainer`` over files that hold a whole sample."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .checkpoints import epochs
from .draft import draft_config
from .training_run import TrainingRun, batch_sampler

__all__ = ["process", "train"]


@contextmanager
def process() -> Iterator[tuple[int, int, int]]:
    """This training process among those that torchrun started: local rank, their number, and the rank among all."""
    from speculators.train.logger import setup_root_logger
    from speculators.train.utils import maybe_destroy_distributed, maybe_setup_distributed

    setup_root_logger()
    local_rank, world_size, rank, is_distributed = maybe_setup_distributed()
    try:
        yield local_rank, world_size, rank
    finally:
        if is_distributed:
            maybe_destroy_distributed()


def train(run: TrainingRun, ranks: tuple[int, int, int]) -> None:
    """Train the draft.

    Args:
        run: The checked run.
        ranks: From :func:`process`.

    Raises:
        UsageError: There are not enough samples to give every process a batch.
    """
    import torch
    from speculators.models.eagle3 import Eagle3DraftModel
    from speculators.train.trainer import Trainer, TrainerConfig

    config, section = run.config, run.config.train
    torch.manual_seed(config.seed)
    local_rank, world_size, rank = ranks
    t2d, d2t = run.vocab
    model = Eagle3DraftModel(config=draft_config(config, run.verifier), t2d=t2d, d2t=d2t)
    loaders = [
        _loader(run, indices, world_size, rank, noisy) for indices, noisy in zip(run.splits, (True, False), strict=True)
    ]
    steps = {"ttt_steps": section.ttt_steps, "ttt_step_loss_decay": section.ttt_step_loss_decay}
    trainer_config = TrainerConfig(
        lr=section.lr,
        num_epochs=section.epochs,
        save_path=str(config.checkpoint_dir),
        resume_from_checkpoint=section.resume and bool(epochs(config)),
        is_distributed=world_size > 1 or "LOCAL_RANK" in os.environ,
        local_rank=local_rank,
        train_call_kwargs={**steps, "use_off_policy_tokens": section.use_off_policy_tokens},
        val_call_kwargs={**steps, "use_off_policy_tokens": False},
        scheduler_type=section.scheduler,
        scheduler_warmup_steps=section.warmup_steps,
    )
    Trainer(model, trainer_config, *loaders).run_training()


def _loader(run: TrainingRun, indices: list[int], world_size: int, rank: int, noisy: bool) -> Any:
    """Packed batches of one split for one rank."""
    import torch
    from speculators.train.data import Eagle3SampleFileDataset, create_collate_fn
    from speculators.train.noise_transforms import AddUniformNoise
    from torch.utils.data import DataLoader

    config = run.config
    noise = AddUniformNoise(std=config.train.noise_std, tensors=("hidden_states",)) if noisy else None
    dataset = Eagle3SampleFileDataset(
        max_len=config.total_seq_len,
        file_list=[str(config.data_dir / f"data_{index}.pt") for index in indices],
        transform=noise if config.train.noise_std else None,
    )
    # The data set drops each sample's first position; its own lengths are guesses on 0.3.0, one
    # too long on 0.4.
    lengths = [run.lengths[index] - 1 for index in indices]
    workers = config.train.num_workers
    return DataLoader(
        dataset,
        batch_sampler=batch_sampler(config, lengths, world_size, rank, seed=config.seed),
        num_workers=workers,
        prefetch_factor=config.train.prefetch_factor if workers else None,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        collate_fn=create_collate_fn(config.total_seq_len),
    )
