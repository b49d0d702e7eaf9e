"""What every kind of training is given: a checked run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..drift import UsageError
from .config import RunConfig
from .verifier import Verifier

__all__ = ["TrainingRun", "batch_sampler"]


@dataclass(frozen=True)
class TrainingRun:
    """A run that may train.

    Attributes:
        config: The run.
        verifier: Its verifier.
        vocab: ``t2d`` (bool [target vocabulary]) and ``d2t`` (int64 [draft vocabulary]) as tensors.
        lengths: Tokens of each sample, by index.
        splits: Indices of the training and of the validation samples.
    """

    config: RunConfig
    verifier: Verifier
    vocab: tuple[Any, Any]
    lengths: dict[int, int]
    splits: tuple[list[int], list[int]]


def batch_sampler(config: RunConfig, lengths: Sequence[int], world_size: int, rank: int, **options: Any) -> Any:
    """Upstream's sampler of packed batches, of one split, for one process.

    Args:
        config: The run.
        lengths: Tokens of each sample, as the data set gives it.
        world_size: Training processes on all nodes.
        rank: This one, of all nodes: with the local rank every node would train on the same data.
        **options: Further arguments of the sampler.

    Raises:
        UsageError: There are not enough samples to give every process a batch; upstream would train for no step.
    """
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

    sampler = MultipackDistributedBatchSamplerV2(
        batch_max_length=config.total_seq_len, lengths=list(lengths), num_replicas=world_size, rank=rank, **options
    )
    if not len(sampler):
        raise UsageError(
            "Every training process needs at least one batch in each split.",
            f"{len(lengths)} samples for {world_size} processes of {config.total_seq_len} tokens",
            "Prepare more data, or lower train.total_seq_len or train.num_processes.",
        )
    return sampler
