"""What a finished run left to draw: training curves, sample lengths, acceptance; as plain numbers.

Every file is read as foreign text: what is missing or damaged is left out, never an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..store import LENGTHS
from .config import RunConfig
from .train import METRICS

__all__ = [
    "SERVE_CHECK",
    "Curves",
    "Head",
    "read_curves",
    "read_heads",
    "read_json",
    "read_lengths",
    "running_mean",
    "thin",
]

SERVE_CHECK = "serve_check.json"


@dataclass
class Curves:
    """Metrics of a training run in the order of its steps.

    Attributes:
        train: One record a step (``loss``, ``loss_k``, ``full_acc_k``, ``cond_acc_k`` for draft step k).
        epochs: Epoch of each of these.
        validation: Steps done before, epoch, and the record without its suffix ``_epoch``.
        unreadable: Lines that are no record.
    """

    train: list[dict[str, float]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    validation: list[tuple[int, int, dict[str, float]]] = field(default_factory=list)
    unreadable: int = 0

    def forget_from(self, epoch: int) -> None:
        """Forget an epoch and all later ones: training went back to the checkpoint before it."""
        keep = next((place for place, found in enumerate(self.epochs) if found >= epoch), len(self.epochs))
        del self.train[keep:], self.epochs[keep:]
        self.validation = [item for item in self.validation if item[1] < epoch]

    def series(self, key: str) -> list[float]:
        """One metric over the training steps; NaN where a step lacks it. Empty if all do."""
        values = [record.get(key, math.nan) for record in self.train]
        return [] if all(math.isnan(value) for value in values) else values

    def validation_series(self, key: str) -> list[tuple[int, float]]:
        """One metric over the validations, each with the training steps done before it."""
        return [(step, record[key]) for step, _, record in self.validation if key in record]

    def draft_steps(self) -> int:
        """Number of draft steps that the trainer logged an accuracy for."""
        count = 0
        while self.series(f"full_acc_{count}"):
            count += 1
        return count


def read_curves(config: RunConfig) -> Curves:
    """Read ``train_metrics.jsonl``: what speculators' trainer logged, a resumed run included.

    Args:
        config: The run.
    """
    curves, last = Curves(), -1
    for line in _text(config.output / METRICS).splitlines():
        record = _json(line)
        epoch, step = (record.get(name) for name in ("epoch", "step")) if isinstance(record, dict) else (None, None)
        if not isinstance(epoch, int) or not isinstance(step, int):
            curves.unreadable += 1
        elif isinstance(record.get("train"), dict):
            # The trainer counts steps from 0 again when it resumes, at the start of an epoch.
            if step <= last:
                curves.forget_from(epoch)
            last = step
            curves.train.append(_numbers(record["train"]))
            curves.epochs.append(epoch)
        elif isinstance(record.get("val"), dict):
            values = {name.removesuffix("_epoch"): value for name, value in _numbers(record["val"]).items()}
            curves.validation.append((len(curves.train), epoch, values))
        else:
            curves.unreadable += 1
    return curves


def read_lengths(config: RunConfig) -> list[int]:
    """Tokens of the extracted samples, from ``sample_lengths.json``."""
    content = read_json(config.data_dir / LENGTHS)
    items = content.items() if isinstance(content, dict) else ()
    return [tokens for index, tokens in items if index.isdigit() and type(tokens) is int and tokens > 0]


@dataclass(frozen=True)
class Head:
    """How vLLM accepted one draft's tokens.

    Attributes:
        name: Of the draft head, as serve-check calls it.
        acceptance: Share of accepted tokens by position, 0 to 1.
        mean_length: Tokens a step of the verifier, its own included; None if not given.
    """

    name: str
    acceptance: list[float]
    mean_length: float | None


def read_heads(config: RunConfig) -> list[Head]:
    """Draft heads in ``serve_check.json``; empty if the check has not run."""
    content = read_json(config.output / SERVE_CHECK)
    heads = content.get("heads") if isinstance(content, dict) else None
    found = []
    for name, record in heads.items() if isinstance(heads, dict) else ():
        values = record.get("acceptance_per_position") if isinstance(record, dict) else None
        if isinstance(values, list) and values and all(_is_share(value) for value in values):
            mean = record.get("mean_acceptance_length")
            found.append(Head(str(name), [float(value) for value in values], mean if _is_number(mean) else None))
    return found


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and ``window // 2`` on either side, fewer at the ends; NaN is left out.

    Args:
        values: In order.
        window: 1 or more; 1 changes nothing.
    """
    means = []
    for place in range(len(values)):
        near = [
            value for value in values[max(0, place - window // 2) : place + window // 2 + 1] if not math.isnan(value)
        ]
        means.append(sum(near) / len(near) if near else math.nan)
    return means


def thin(values: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """At most ``points`` means of neighbouring values, and the place of each, counted from 1.

    Args:
        values: In order.
        points: 1 or more.
    """
    width = max(1, -(-len(values) // points))
    places, means = [], []
    for start in range(0, len(values), width):
        part = [value for value in values[start : start + width] if not math.isnan(value)]
        places.append(start + (len(values[start : start + width]) + 1) / 2)
        means.append(sum(part) / len(part) if part else math.nan)
    return places, means


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a record; a loss that is not finite leaves a gap in the curve."""
    return {str(name): float(value) for name, value in record.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def read_json(path: Path) -> Any:
    """Content of a JSON file; None if it is missing or damaged."""
    return _json(_text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
