"""Step 3: the draft's vocabulary, by speculators' ``build_vocab_mappings_from_distribution``.

Writes ``token_freq.pt`` (id to count of trainable tokens), ``d2t.npy`` (int64 [draft vocabulary],
offsets: target id = draft id + offset) and ``t2d.npy`` (bool [target vocabulary]) to
``<output>/vocab``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ..store import atomic_file
from .config import RunConfig
from .prepare import load_rows
from .summary import recorded_step
from .verifier import check_run, turn_end_ids

__all__ = ["run"]


def run(config: RunConfig) -> None:
    """Count the trainable tokens of the prepared rows and choose the draft's vocabulary.

    Args:
        config: The run.

    Raises:
        UsageError: There are no prepared rows, or the draft's vocabulary is larger than the
            verifier's.
    """
    verifier = check_run(config)
    rows, _ = load_rows(config)
    from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

    size = config.vocab.draft_vocab_size
    with recorded_step(config, "vocab") as report:
        counts = _count(config, rows)
        ends = turn_end_ids(config, verifier)
        d2t, t2d = build_vocab_mappings_from_distribution(_with_ends(counts, ends), size, verifier.vocab_size)
        _save_array(config.vocab_dir / "d2t.npy", d2t.numpy())
        _save_array(config.vocab_dir / "t2d.npy", t2d.numpy())
        trainable = sum(counts.values())
        covered = sum(count for token, count in counts.items() if t2d[token])
        report.update(
            draft_vocab_size=size,
            target_vocab_size=verifier.vocab_size,
            distinct_tokens=len(counts),
            turn_end_tokens=ends,
            trainable_tokens=trainable,
            coverage=covered / trainable,
        )


def _with_ends(counts: dict[int, int], ends: list[int]) -> dict[int, int]:
    """Counts in which the tokens that end a turn come first.

    A draft without them proposes something else at the end of every answer, and rows that were tokenised elsewhere, or
    cut before their end, may not hold one.
    """
    most = max(counts.values(), default=0) + 1
    return {**counts, **dict.fromkeys(ends, most)}


def _count(config: RunConfig, rows: Any) -> dict[int, int]:
    """Count afresh: upstream returns an existing file unread, whatever data it was counted from."""
    import torch
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    config.vocab_dir.mkdir(parents=True, exist_ok=True)
    target = config.vocab_dir / "token_freq.pt"
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=config.vocab_dir) as scratch:
        fresh = Path(scratch) / "token_freq.pt"
        save_token_frequency_distribution(rows, str(fresh))
        fresh.replace(target)
    counts: dict[int, int] = torch.load(target, weights_only=True)
    return counts


def _save_array(path: Path, array: Any) -> None:
    import numpy as np

    with atomic_file(path) as file:
        np.save(file, array)
