"""Which samples train and which validate: drawn with the run's seed, or cut where the newer trainers cut."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..drift import UsageError
from .config import RunConfig
from .trainers import trains_on_rows

__all__ = ["split", "split_rows", "splits"]


def splits(config: RunConfig, indices: Iterable[int]) -> tuple[list[int], list[int]]:
    """Training and validation samples of a run, as the installed trainer has them.

    Args:
        config: The run.
        indices: Every sample.

    Returns:
        Training and validation indices, disjoint, both non-empty.

    Raises:
        UsageError: There are too few samples for both.
    """
    if trains_on_rows():
        return split_rows(indices, config.train.train_ratio)
    return split(list(indices), config.train.train_ratio, config.seed)


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
    return _cut(shuffled, ratio)


def split_rows(indices: Iterable[int], ratio: float) -> tuple[list[int], list[int]]:
    """Split as ``ArrowDataset`` of speculators 0.5 and later does: the first rows train, the last validate.

    The prepared rows are shuffled already, with the run's seed.
    https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/data.py

    Args:
        indices: Rows.
        ratio: Share of the training split.

    Returns:
        Training and validation rows, disjoint, both non-empty.

    Raises:
        UsageError: There are too few rows for both.
    """
    return _cut(sorted(indices), ratio)


def _cut(ordered: list[int], ratio: float) -> tuple[list[int], list[int]]:
    size = int(len(ordered) * ratio)
    if not 0 < size < len(ordered):
        raise UsageError(
            "Training and validation need at least one sample each.",
            f"{len(ordered)} samples, train_ratio {ratio}",
            "Prepare more data, or change train.train_ratio.",
        )
    return ordered[:size], ordered[size:]
