"""Names what is wrong in extracted states, by finding where else the rows fit: a pure function of arrays.

A row that differs from its reference is looked for among the states of other layers, of other rows and of other
prompts. So a fault is told by what it is ("rows 128 to 199 are rows 0 to 71 of prompt 3"), and differences of
arithmetic, which fit nowhere better, are not mistaken for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["NORMED", "Report", "Sample", "diagnose"]

Array: TypeAlias = Any  # of NumPy, float32

#: Key of the last layer's state after the final norm, beside layer ids.
NORMED = -1
#: A better fit is one whose error is at most this share of the other's.
CLEARLY = 0.5
#: A row that fits nowhere else and is off by less is noise: rounding, or an expert chosen differently.
NOISE = 0.5
#: Share of a layer's rows that may be noise.
NOISY_SHARE = 0.1
#: Share of the tolerance up to which no better fit is looked for.
FLOOR = 0.125


@dataclass(frozen=True)
class Sample:
    """One sample as extracted, or as it should be.

    Attributes:
        token_ids: Its tokens.
        states: By layer (k: after layer k; ``NORMED``), [rows, hidden], float32. Of what was extracted: the layers that
            were asked for, as its columns are taken for.
    """

    token_ids: Sequence[int]
    states: Mapping[int, Array]


@dataclass
class Report:
    """What a comparison found.

    Attributes:
        errors: Worst relative L2 error of each layer, of the rows as they stand.
        findings: What is wrong, one sentence each; empty: nothing.
        noisy_rows: Rows beyond the tolerance that are still nearest to what they should be.
        rows: Rows compared, of all layers.
    """

    errors: dict[int, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    noisy_rows: int = 0
    rows: int = 0


def diagnose(found: Mapping[int, Sample], expected: Mapping[int, Sample], tolerance: float) -> Report:
    """Compare extracted samples with what they should be.

    Args:
        found: By index of the sample; what is missing is reported.
        expected: By index; each with the layers of ``found`` and any others that may have been taken for them.
        tolerance: Relative L2 error of a row that is arithmetic.

    Returns:
        The findings, in the order of the samples; one that concerns all layers of a sample is said once.
    """
    report = Report()
    for index in sorted(expected):
        if index not in found:
            report.findings.append(f"sample {index}: its file is missing")
            continue
        texts = _tokens(found[index], index, expected) or _sample(report, index, found, expected, tolerance)
        report.findings += [f"sample {index}: {text}" for text in texts]
    _same_for_all(report, len(expected))
    return report


def _tokens(sample: Sample, index: int, expected: Mapping[int, Sample]) -> list[str]:
    given, wanted = list(sample.token_ids), list(expected[index].token_ids)
    if given == wanted:
        return []
    for other in sorted(expected):
        if given == list(expected[other].token_ids):
            return [f"its file is that of prompt {other}"]
    differ = (place for place, (one, two) in enumerate(zip(given, wanted, strict=False)) if one != two)
    at = next(differ, min(len(given), len(wanted)))
    return [f"other token_ids than the prepared row's from token {at} on ({len(given)} tokens for {len(wanted)})"]


def _sample(
    report: Report, index: int, found: Mapping[int, Sample], expected: Mapping[int, Sample], tolerance: float
) -> list[str]:
    """What is wrong in one sample; every layer's own sentences are joined where they agree."""
    said: dict[str, list[int]] = {}
    held: dict[int, int] = {}
    wanted = expected[index]
    for layer, rows in found[index].states.items():
        if rows.shape[1] != wanted.states[layer].shape[1]:
            return [f"states of {rows.shape[1]} values a row instead of {wanted.states[layer].shape[1]}"]
        count = min(len(rows), len(wanted.states[layer]))
        error = _relative(rows[:count], wanted.states[layer][:count])
        report.errors[layer] = max(report.errors.get(layer, 0.0), error)
        report.rows += count
        held[layer] = _layer_of(rows, layer, wanted, tolerance)
        references = {other: sample.states[held[layer]] for other, sample in expected.items()}
        texts, noisy = _rows(rows, index, references, tolerance)
        report.noisy_rows += noisy
        for text in texts:
            said.setdefault(text, []).append(layer)
    every = len(found[index].states)
    rows_said = [text if len(layers) == every else f"layer {_names(layers)}: {text}" for text, layers in said.items()]
    return [*_layers(held), *rows_said]


def _layer_of(rows: Array, layer: int, wanted: Sample, tolerance: float) -> int:
    """The layer whose states a column holds; its own unless another fits clearly better."""
    import numpy as np

    count = min(len(rows), len(wanted.states[layer]))
    if not count:
        return layer
    errors = {
        other: float(np.median(_row_errors(rows[:count], states[:count]))) for other, states in wanted.states.items()
    }
    best = min(errors, key=lambda other: errors[other])
    clear = errors[layer] > FLOOR * tolerance and errors[best] <= CLEARLY * errors[layer]
    return best if clear else layer


def _layers(held: Mapping[int, int]) -> list[str]:
    """Sentences about columns that hold another layer's states."""
    wrong = {layer: other for layer, other in held.items() if layer != other}
    texts = []
    last = max(held)
    if wrong.get(last) == NORMED:
        del wrong[last]
        texts.append("the last layer is after the final norm")
    moves = {other - layer for layer, other in wrong.items() if other != NORMED}
    movable = [layer for layer in held if layer != last or last in wrong]
    if len(moves) == 1 and len(wrong) > 1 and len(wrong) == len(movable):
        by, first = abs(moves.pop()), min(wrong)
        return [*texts, f"layers are shifted by {_number(by)}: layer {first} is layer {wrong[first]}, and so on"]
    return [*texts, *(f"layer {layer} is {_layer(other)}" for layer, other in wrong.items())]


def _layer(layer: int) -> str:
    return "the last layer after the final norm" if layer == NORMED else f"layer {layer}"


def _number(count: int) -> str:
    return {1: "one", 2: "two"}.get(count, str(count))


def _rows(rows: Array, index: int, references: Mapping[int, Array], tolerance: float) -> tuple[list[str], int]:
    """Sentences about the rows of one column, and how many rows are noise."""
    import numpy as np

    own = references[index]
    texts = []
    if len(rows) > len(own):
        texts.append(f"{len(rows)} rows for {len(own)} tokens")
    elif len(rows) < len(own):
        texts.append(f"the last chunk is missing: {_are(len(rows), len(own))} not in the file")
    count = min(len(rows), len(own))
    rows, own = rows[:count], own[:count]
    errors = _row_errors(rows, own)
    off = np.flatnonzero(errors > tolerance)
    noisy = 0
    lost: list[int] = []
    position = 0
    while position < len(off):
        row = int(off[position])
        match = _match(rows, row, float(errors[row]), references, tolerance)
        if match is None:
            if bool(np.isfinite(rows[row]).all()) and errors[row] < NOISE:
                noisy += 1
            else:
                lost.append(row)
            position += 1
            continue
        prompt, start, length = match
        whose = "the same prompt" if prompt == index else f"prompt {prompt}"
        texts.append(f"{_are(row, row + length)} {_range(start, start + length)} of {whose}")
        position = int(np.searchsorted(off, row + length))
    if noisy > 1 + NOISY_SHARE * count:
        typical = float(np.median(errors[off]))
        texts.append(f"{noisy} of {count} rows differ, by {typical:.1e} at the median, and fit nowhere better")
    return [*texts, *_lost(rows, lost)], noisy


def _match(
    rows: Array, row: int, error: float, references: Mapping[int, Array], tolerance: float
) -> tuple[int, int, int] | None:
    """Where a row is from: prompt, its row there, and how many rows go on from there; None: nowhere."""
    best: tuple[int, int, int] | None = None
    limit = min(tolerance, CLEARLY * error)
    for prompt, states in references.items():
        distances = _distances(rows[row], states)
        for start in (int(place) for place in (distances <= limit).nonzero()[0]):
            length = _run(rows, row, states, start, tolerance)
            if length > (best[2] if best else 0):  # 0: at the tolerance, and rounded otherwise
                best = (prompt, start, length)
    return best


def _run(rows: Array, row: int, states: Array, start: int, tolerance: float) -> int:
    """How many rows from ``row`` on are those from ``start`` on."""
    count = min(len(rows) - row, len(states) - start)
    fits = _row_errors(rows[row : row + count], states[start : start + count]) <= tolerance
    return int(count if fits.all() else fits.argmin())


def _lost(rows: Array, lost: list[int]) -> Iterator[str]:
    """Sentences about rows that are from nowhere."""
    import numpy as np

    for first, last in _runs(lost):
        part = rows[first:last]
        what = "unlike any row"
        if not np.isfinite(part).all():
            what = "not finite"
        elif not part.any():
            what = "zero"
        tail = first > 0 and last == len(rows) and last - first > 1
        yield f"{'the last chunk is missing: ' if tail else ''}{_are(first, last)} {what}"


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as half-open ranges."""
    first = previous = None
    for place in places:
        if previous is not None and place == previous + 1:
            previous = place
            continue
        if first is not None and previous is not None:
            yield first, previous + 1
        first = previous = place
    if first is not None and previous is not None:
        yield first, previous + 1


def _range(first: int, end: int) -> str:
    return f"row {first}" if end == first + 1 else f"rows {first} to {end - 1}"


def _are(first: int, end: int) -> str:
    return f"{_range(first, end)} {'is' if end == first + 1 else 'are'}"


def _names(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))


def _row_errors(rows: Array, wanted: Array) -> Array:
    """Relative L2 error of each row; infinite where a row is not finite."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        errors = np.linalg.norm(rows - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    return np.where(np.isnan(errors), np.inf, errors)


def _distances(row: Array, states: Array) -> Array:
    """Relative L2 error of one row against every row of ``states``."""
    return _row_errors(row[None, :], states)


def _relative(rows: Array, wanted: Array) -> float:
    import numpy as np

    if not len(wanted):
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.linalg.norm(rows - wanted) / np.linalg.norm(wanted))
    return error if np.isfinite(error) else float("inf")


def _same_for_all(report: Report, samples: int) -> None:
    """Say once what every sample has."""
    tails: dict[str, list[str]] = {}
    for finding in report.findings:
        tails.setdefault(finding.partition(": ")[2], []).append(finding)
    for tail, findings in tails.items():
        if samples > 1 and len(findings) == samples:
            place = report.findings.index(findings[0])
            report.findings = [finding for finding in report.findings if finding not in findings]
            report.findings.insert(place, f"every sample: {tail}")
