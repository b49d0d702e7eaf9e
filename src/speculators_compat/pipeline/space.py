"""Whether the disk of the run folder can hold what a run has still to write."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..sample_files import FORMS, installed_form
from .config import RunConfig
from .draft import layer_fields
from .sizes import (
    INDEX_BYTES,
    DraftSize,
    Item,
    Shape,
    draft_size,
    readable,
    sample_bytes,
    state_bytes,
    total,
)
from .train import complete_epochs
from .verifier import Verifier
from .workload import Workload, row_lengths

__all__ = ["check_rows", "check_space", "free_space", "needed"]


def needed(config: RunConfig, shape: Shape, draft: DraftSize, work: Workload) -> list[Item]:
    """What is still to be written; samples and checkpoints that are there and complete do not count again.

    Args:
        config: The run.
        shape: The verifier's.
        draft: The draft's.
        work: The samples.

    Returns:
        One item each for the prepared rows, the samples and the checkpoints.
    """
    return [_rows(work), _samples(config, shape, work), _checkpoints(config, draft)]


def check_rows(config: RunConfig, verifier: Verifier, rows: Any, done: Mapping[int, int]) -> None:
    """The check of :func:`check_space` for prepared rows, before an engine starts.

    Args:
        config: The run.
        verifier: Its verifier.
        rows: The prepared rows.
        done: Tokens of the samples that are extracted and readable, by row.

    Raises:
        UsageError: The disk cannot hold what is still missing.
    """
    shape = Shape.of(verifier)
    draft = draft_size(layer_fields(config.train.draft, verifier), config.vocab.draft_vocab_size)
    work = Workload.counted(config, shape, row_lengths(rows), done)
    check_space(config, needed(config, shape, draft, work), exact=True)


def check_space(config: RunConfig, items: list[Item], exact: bool) -> None:
    """Refuse a run that its disk cannot hold, with the arithmetic.

    Args:
        config: The run.
        items: From :func:`needed`.
        exact: False if the items are upper bounds.

    Raises:
        UsageError: The known items are more than the free space.
    """
    folder, free = free_space(config)
    missing = total(items)
    if missing <= free:
        return
    bound = "" if exact else "at most "
    parts = "; ".join(f"{item.name} {readable(item.bytes)} = {item.how}" for item in items if item.bytes)
    way_out = f"Free {readable(missing - free)} more, set output to a larger disk, or lower prepare.max_samples, "
    way_out += "seq_length or train.epochs."
    if not exact:
        way_out += " The tokens are an upper bound: after the prepare step they are counted."
    raise UsageError(
        f"The disk of {config.output} must hold what is still missing, {bound}{readable(missing)}: {parts}.",
        f"{readable(free)} free in {folder}",
        way_out,
    )


def free_space(config: RunConfig) -> tuple[Path, int]:
    """The existing folder that the run folder is, or will be, in, and the bytes that are free there for this user."""
    folder = config.output.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder, shutil.disk_usage(folder).free


def _rows(work: Workload) -> Item:
    name = "prepared rows"
    if work.exact:
        return Item(name, 0, "they are there")
    if work.tokens is None:
        return Item(name, None, work.source)
    return Item(name, work.tokens * 2 * INDEX_BYTES, f"{work.tokens:,} tokens x {2 * INDEX_BYTES} B for id and mask")


def _samples(config: RunConfig, shape: Shape, work: Workload) -> Item:
    name, files = "samples", FORMS[installed_form()]
    what = "id and mask" if files.index_tensors == 2 else "id"
    token = f"{state_bytes(config, shape):,} B of states + {files.index_tensors * INDEX_BYTES} B for {what} a token"
    if work.missing is None:
        return Item(name, None, f"{token}; {work.source}")
    samples, tokens = work.missing
    how = f"{tokens:,} tokens x ({token}) + {samples:,} files x {files.overhead:,} B"
    return Item(name, sample_bytes(config, shape, samples, tokens), how)


def _checkpoints(config: RunConfig, draft: DraftSize) -> Item:
    there = len([epoch for epoch in complete_epochs(config) if epoch < config.train.epochs])
    epochs = config.train.epochs - there
    each = draft.saved_weights + draft.saved_optimizer
    how = f"{epochs} epochs x ({readable(draft.saved_weights)} weights + {readable(draft.saved_optimizer)} optimizer)"
    return Item("checkpoints", epochs * each, how)
