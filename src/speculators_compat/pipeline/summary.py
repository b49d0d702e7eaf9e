"""One JSON report per finished step, gathered into ``summary.json`` and one table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..store import write_json
from .config import RunConfig

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["STEPS", "as_table", "collect", "gather", "lines", "read_step", "recorded_step"]

STEPS = ("prepare", "extract", "vocab", "train")


@contextmanager
def recorded_step(config: RunConfig, step: str) -> Iterator[dict[str, Any]]:
    """Time a step and keep what it reports.

    Args:
        config: The run.
        step: Name of the step.

    Yields:
        A dictionary that the step fills; written with the seconds taken if the step succeeds.
    """
    report: dict[str, Any] = {}
    started = time.monotonic()
    yield report
    report["seconds"] = round(time.monotonic() - started, 1)
    write_json(config.steps_dir / f"{step}.json", report)


def read_step(config: RunConfig, step: str) -> dict[str, Any]:
    """The report of a step's last success; empty if there is none."""
    try:
        report = json.loads((config.steps_dir / f"{step}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def collect(config: RunConfig) -> dict[str, Any]:
    """Every step's report and the run's name, as far as the run has come."""
    summary = {"model": config.model, "output": str(config.output)}
    return {**summary, **{step: read_step(config, step) for step in STEPS}}


def gather(config: RunConfig) -> dict[str, Any]:
    """Every step's report and the run's name; also written to ``summary.json``."""
    content = collect(config)
    write_json(config.output / "summary.json", content)
    return content


def as_table(summary: dict[str, Any]) -> Table:
    """The summary for people."""
    from rich.table import Table

    table = Table(title=f"{summary['output']}: {summary['model']}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in lines(summary):
        table.add_row(name, value)
    return table


def lines(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and value of each line of the summary, for people."""
    prepare, extract, vocab, train = (summary[step] for step in STEPS)
    if prepare:
        yield (
            "samples prepared",
            f"{prepare['samples']:,} {_unit(prepare)} {prepare['conversations']:,} conversations",
        )
        yield "dropped", _counts(prepare["dropped"])
        yield "truncated", _counts(prepare["truncated"])
    if extract:
        new = extract["extracted"]
        yield "samples extracted", f"{extract['samples']:,} ({new:,} in the last run of the step)"
        yield (
            "tokens extracted",
            f"{extract['tokens']:,} ({extract['bytes'] / 1e6:,.1f} MB written in the last run)",
        )
        yield "layers", f"{extract['layer_ids']} (vLLM: {extract['vllm_layer_ids']})"
        if extract.get("shares"):
            shares = ", ".join(f"{name} {share:.0%}" for name, share in extract["shares"].items())
            yield "time of extraction", shares
        if extract["truncated"]:
            yield "cut by the engine", f"{extract['truncated']:,} samples"
    if vocab:
        yield (
            "draft vocabulary",
            f"{vocab['draft_vocab_size']:,} of {vocab['target_vocab_size']:,} tokens",
        )
        yield (
            "vocabulary coverage",
            f"{vocab['coverage']:.2%} of {vocab['trainable_tokens']:,} trainable tokens",
        )
    if train:
        losses = f"{_loss(train['first_loss'])} -> {_loss(train['last_loss'])}"
        yield "training loss", f"{losses} in {train['steps']:,} steps"
        first, last = train["first_validation_loss"], train["last_validation_loss"]
        yield "validation loss", f"{_loss(first)} -> {_loss(last)}"
        yield "checkpoint", train["checkpoint"]
    seconds = {step: summary[step]["seconds"] for step in STEPS if summary[step]}
    yield "seconds (each step's last run)", ", ".join(f"{step} {value}" for step, value in seconds.items())


def _loss(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _counts(reasons: dict[str, int]) -> str:
    return "; ".join(f"{count:,} ({reason})" for reason, count in reasons.items()) or "none"


def _unit(prepare: dict[str, Any]) -> str:
    return "assistant turns of" if prepare.get("rows") == "assistant turns" else "of"
