"""Pictures of a run as PNG: loss, accuracy by draft step, sample lengths, acceptance by position.

matplotlib is an optional requirement (the extra ``report``); it is imported by :func:`draw` alone. One hue from dark to
light with different lines and hatches, so that a print in grey still tells them apart.
"""

from __future__ import annotations

import importlib
import io
import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .curves import Curves, Head, running_mean, thin

__all__ = ["NAMES", "Picture", "draw"]

NAMES = ("loss", "accuracy", "lengths", "acceptance")
SIZE, DPI = (6.0, 3.6), 150  # inches: 900 x 540 pixels, of which a page shows 600 at least
DARK, LIGHT, ACCENT = "#08519c", "#b9d3ea", "#c25400"
SHADES = ("#08306b", "#2b7bba", "#85bcdb", "#b9d3ea")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "...", "xxx")
POINTS = 600
MAX_HEADS = 6


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        name: One of ``NAMES``; the file is ``<name>.png``.
        title: For people.
        caption: What it shows, in words.
        png: The file's content.
    """

    name: str
    title: str
    caption: str
    png: bytes


def draw(curves: Curves, lengths: Sequence[int], heads: Sequence[Head]) -> list[Picture]:
    """Draw what there is to draw.

    Args:
        curves: Training metrics.
        lengths: Tokens of the samples.
        heads: Acceptance of each draft head.

    Returns:
        The pictures, in the order of ``NAMES``; one whose data are missing is left out.

    Raises:
        ImportError: matplotlib is not installed.
    """
    importlib.import_module("matplotlib")  # before anything is drawn, and when there is nothing to draw
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it reports its font cache
    pictures = []
    if curves.series("loss"):
        pictures.append(_loss(curves))
    if curves.draft_steps():
        pictures.append(_accuracy(curves))
    if lengths:
        pictures.append(_lengths(lengths))
    if heads:
        pictures.append(_acceptance(heads[:MAX_HEADS]))
    return pictures


def _loss(curves: Curves) -> Picture:
    figure, axes = _axes("training step", "loss (nats, sum over draft steps)")
    places, values = thin(curves.series("loss"), POINTS)
    axes.plot(places, values, color=LIGHT, linewidth=1.2, label="training, each step")
    axes.plot(places, _smooth(values), color=DARK, linewidth=2.0, label="training, running mean")
    validation = curves.validation_series("loss")
    if validation:
        axes.plot(*zip(*validation, strict=True), color=ACCENT, marker="o", markersize=5, label="validation")
    _legend(figure)
    last = f", validation {validation[-1][1]:.3f} after the last epoch" if validation else ""
    return Picture("loss", "Loss", f"{len(curves.train):,} training steps{last}.", _png(figure))


def _accuracy(curves: Curves) -> Picture:
    figure, axes = _axes("training step", "correct up to this token (%)")
    for step in range(curves.draft_steps()):
        colour, line = SHADES[min(step, len(SHADES) - 1)], LINES[step % len(LINES)]
        places, values = thin([100 * value for value in curves.series(f"full_acc_{step}")], POINTS)
        axes.plot(places, _smooth(values), color=colour, linestyle=line, linewidth=2.0, label=f"draft token {step + 1}")
        validation = [(place, 100 * value) for place, value in curves.validation_series(f"full_acc_{step}")]
        if validation:
            label = "validation" if step == 0 else None
            axes.plot(*zip(*validation, strict=True), color=colour, linestyle="", marker="o", markersize=6, label=label)
    axes.set_ylim(0, 100)
    _legend(figure)
    caption = (
        "Share of trained positions at which the draft's first tokens up to this one are the verifier's most likely."
    )
    return Picture("accuracy", "Accuracy by draft step", caption, _png(figure))


def _lengths(lengths: Sequence[int]) -> Picture:
    figure, axes = _axes("sample length (tokens)", "samples")
    width = max(1, -(-max(lengths) // 40))
    edges = range(0, max(lengths) + width + 1, width)
    axes.hist(lengths, bins=list(edges), color=LIGHT, edgecolor=DARK, linewidth=0.8)
    middle = statistics.median(lengths)
    axes.axvline(middle, color=ACCENT, linestyle="--", linewidth=1.5, label=f"median {middle:,.0f}")
    _legend(figure)
    caption = f"{len(lengths):,} samples, {sum(lengths):,} tokens; the longest has {max(lengths):,}."
    return Picture("lengths", "Sample lengths", caption, _png(figure))


def _acceptance(heads: Sequence[Head]) -> Picture:
    figure, axes = _axes("position of the draft token", "accepted by the verifier (%)")
    width = 0.8 / len(heads)
    positions = max(len(head.acceptance) for head in heads)
    for number, head in enumerate(heads):
        left = [place + 1 + (number - (len(heads) - 1) / 2) * width for place in range(len(head.acceptance))]
        axes.bar(
            left,
            [100 * value for value in head.acceptance],
            width,
            color=SHADES[number % len(SHADES)],
            edgecolor="white",
            hatch=HATCHES[number % len(HATCHES)],
            label=_label(head),
        )
    axes.set_xticks(range(1, positions + 1))
    axes.set_ylim(0, 100)
    _legend(figure)
    caption = "Share of proposed tokens that vLLM accepted, by position; mean length counts the verifier's own token."
    return Picture("acceptance", "Acceptance by position", caption, _png(figure))


def _label(head: Head) -> str:
    """A head's name for a legend: no mathematics, and no leading underscore, which hides an entry."""
    name = head.name.replace("\\", "/").replace("$", r"\$").strip().lstrip("_")[:40] or "unnamed"
    return name if head.mean_length is None else f"{name} (mean length {head.mean_length:.2f})"


def _smooth(values: Sequence[float]) -> list[float]:
    return running_mean(values, max(5, len(values) // 30))


def _axes(horizontal: str, vertical: str) -> tuple[Any, Any]:
    """A figure without pyplot, whose global state belongs to whoever imports this package."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(horizontal, fontsize=11)
    axes.set_ylabel(vertical, fontsize=11)
    axes.tick_params(labelsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure, axes


def _legend(figure: Any) -> None:
    """Above the axes, where it covers no data."""
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=10)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    # Without the software's version, so that equal figures are equal files.
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
