"""How many samples and tokens a run has: counted in the prepared rows, or bounded before they exist."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..conversations import is_list, role_of
from ..drift import UsageError
from ..store import MANIFEST, SampleStore
from .config import RunConfig
from .manifest import manifest_of
from .prepare import load_rows, rows_are_turns
from .sizes import Shape
from .verifier import Verifier

__all__ = ["Workload", "count_answers", "count_conversations", "row_lengths", "workload"]


@dataclass(frozen=True)
class Workload:
    """Samples of a run.

    Attributes:
        samples: How many; None if nothing says so yet.
        tokens: Their tokens.
        done_samples: Of these, how many are extracted and readable.
        done_tokens: Their tokens.
        exact: True if counted, False for an upper bound.
        source: Where the figures come from.
    """

    samples: int | None
    tokens: int | None
    done_samples: int
    done_tokens: int
    exact: bool
    source: str

    @property
    def missing(self) -> tuple[int, int] | None:
        """Samples and tokens that are still to extract; None if unknown."""
        if self.samples is None or self.tokens is None:
            return None
        return max(0, self.samples - self.done_samples), max(0, self.tokens - self.done_tokens)

    @classmethod
    def counted(cls, config: RunConfig, shape: Shape, lengths: Sequence[int], done: Mapping[int, int]) -> Workload:
        """The workload of known rows.

        Args:
            config: The run.
            shape: Its verifier's.
            lengths: Tokens of every row.
            done: Tokens of the samples that are extracted and readable, by row.
        """
        longest = shape.longest_sample(config)
        kept = [min(length, longest) for length in lengths]
        return cls(
            samples=len(kept),
            tokens=sum(kept),
            done_samples=len(done),
            done_tokens=sum(kept[index] for index in done),
            exact=True,
            source=f"exact: the prepared rows in {config.prepared_dir}",
        )


def workload(config: RunConfig, verifier: Verifier, shape: Shape) -> Workload:
    """Count the prepared rows; before they exist, bound them by the data file.

    Args:
        config: The run.
        verifier: Its verifier.
        shape: The same, as numbers.

    Raises:
        UsageError: The rows or samples in the run folder are another configuration's, or the data file cannot be read.
    """
    if not (config.prepared_dir / "prepared.json").exists():
        return _bound(config, shape)
    rows, fingerprint = load_rows(config)
    done: Mapping[int, int] = {}
    if (config.data_dir / MANIFEST).exists():
        store = SampleStore(config.data_dir, manifest_of(config, verifier, fingerprint, len(rows)))
        done = store.lengths(lambda index: rows[index]["input_ids"])
    return Workload.counted(config, shape, row_lengths(rows), done)


def row_lengths(rows: Any) -> list[int]:
    """Tokens of every prepared row, without making tensors of them.

    Args:
        rows: A data set of the datasets library with a column ``input_ids``.
    """
    lengths: list[int] = []
    for batch in rows.with_format("arrow").iter(1000):
        lengths += (len(ids) for ids in batch.column("input_ids"))
    return lengths


def _bound(config: RunConfig, shape: Shape) -> Workload:
    """At most one sample a conversation, or an assistant turn, each at most as long as the engine takes."""
    data, limit = config.prepare.data, config.prepare.max_samples
    longest = shape.longest_sample(config)
    samples, named = limit, f"prepare.max_samples, {limit}"
    if data.endswith((".json", ".jsonl")) and not data.startswith("hf:"):
        turns = rows_are_turns()
        there = count_answers(Path(data)) if turns else count_conversations(Path(data))
        if limit is None or there < limit:
            samples, named = there, f"{there:,} {'assistant turns' if turns else 'conversations'} in {data}"
    source = f"upper bound: {named}, x {longest:,} tokens (before the prepare step lengths are not known)"
    if samples is None:
        source = f"unknown: {data} is a named data set; set prepare.max_samples, or run the prepare step"
    return Workload(
        samples=samples,
        tokens=None if samples is None else samples * longest,
        done_samples=0,
        done_tokens=0,
        exact=False,
        source=source,
    )


def count_conversations(path: Path) -> int:
    """Conversations of a data file: its lines that are not empty, or the entries of a JSON list.

    Args:
        path: A .jsonl or .json file.

    Raises:
        UsageError: The file cannot be read.
    """
    with _readable(path), path.open("rb") as file:
        if is_list(path):
            return len(json.load(file))
        return sum(1 for line in file if line.strip())


def count_answers(path: Path) -> int:
    """Assistant turns of a data file, and its rows that are tokenised already: samples of speculators 0.8 and later.

    Args:
        path: A .jsonl or .json file.

    Raises:
        UsageError: The file cannot be read.
    """
    with _readable(path), path.open("rb") as file:
        rows = json.load(file) if is_list(path) else (json.loads(line) for line in file if line.strip())
        return sum(_answers(row) for row in rows)


def _answers(row: Any) -> int:
    if "input_ids" in row:
        return 1
    return sum(role_of(turn) == "assistant" for turn in row.get("conversations") or ())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, AttributeError, TypeError) as error:  # the last two: JSON of another form
        raise UsageError(
            "prepare.data must be a readable file.", f"{path}: {error}".splitlines()[0], "Correct the path."
        ) from error
