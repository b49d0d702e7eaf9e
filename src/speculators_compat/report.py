"""Versions and drifts of this environment, as a table or as JSON. Decides nothing."""

from __future__ import annotations

import importlib
import platform
import sys
from collections import Counter
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from . import activation, matrix, versions
from .drift import Outcome
from .drifts import catalogue

__all__ = ["as_renderable", "collect", "is_sound"]

PACKAGES = ("vllm", "speculators", "torch", "transformers")


def collect(load: bool = False) -> dict[str, Any]:
    """Gather the facts.

    Args:
        load: Import speculators' modules first, so that drifts that wait for them are settled.

    Returns:
        ``versions`` (name to version and distribution), ``pair`` (its row of the tested matrix, or
        why there is none), ``drifts`` (id, state, reason, title) and ``problems`` (modules that
        could not be imported).
    """
    problems = _load() if load else {}
    return {
        "versions": _versions(),
        "pair": _pair(),
        "drifts": [_drift(outcome) for outcome in activation.outcomes()],
        "problems": problems,
    }


def is_sound(facts: dict[str, Any]) -> bool:
    """Whether both packages are there, every module could be imported, and no drift is blocked."""
    present = all(facts["versions"][name]["version"] for name in ("vllm", "speculators"))
    blocked = any(drift["state"] == "blocked" for drift in facts["drifts"])
    return present and not blocked and not facts["problems"]


def as_renderable(facts: dict[str, Any]) -> Group:
    """The facts for people."""
    table = Table(show_header=True, title_justify="left")
    for name in ("drift", "state", "reason"):
        table.add_column(name, overflow="fold")
    for drift in facts["drifts"]:
        table.add_row(drift["id"], drift["state"], Text(drift["reason"]))
    lines = [f"{name} {_named(item)}" for name, item in facts["versions"].items()]
    lines.append(f"pair: {facts['pair']['state']}")
    lines += [f"cannot import {module}: {error}" for module, error in facts["problems"].items()]
    return Group(*(Text(line) for line in lines), table, Text(_counts(facts["drifts"])))


def _counts(drifts: list[dict[str, Any]]) -> str:
    """How many drifts are in each state, and how to settle those that wait."""
    counts = Counter(drift["state"] for drift in drifts)
    line = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return (
        f"{line}. A drift waits until its module is imported: doctor --load imports them all."
        if counts["waiting"]
        else line
    )


def _named(item: dict[str, Any]) -> str:
    if not item["version"]:
        return "not installed"
    return str(item["version"]) + (f" ({item['distribution']})" if item["distribution"] else "")


def _versions() -> dict[str, dict[str, Any]]:
    from . import __version__

    found: dict[str, dict[str, Any]] = {"speculators_compat": {"version": __version__, "distribution": None}}
    for name in PACKAGES:
        item = versions.installed(name)
        found[name] = {
            "version": item.version if item else None,
            "distribution": item.distribution if item and item.distribution != name else None,
        }
    found["python"] = {"version": platform.python_version(), "distribution": sys.platform}
    return found


def _pair() -> dict[str, Any]:
    vllm, speculators = versions.installed("vllm"), versions.installed("speculators")
    if vllm is None or speculators is None:
        return {"state": "incomplete: vLLM and speculators must both be installed", "row": None}
    row = matrix.row_of(vllm.version, speculators.version)
    if row is not None:
        build = "" if vllm.is_plain_release else f", as release {vllm.release}; this build itself is not"
        return {"state": f"tested{build}", "row": dict(row)}
    if matrix.is_newer_than_tested(vllm.version):
        return {"state": "not tested: vLLM is newer than any tested release", "row": None}
    return {"state": "not tested", "row": None}


def _drift(outcome: Outcome) -> dict[str, Any]:
    return {**outcome.as_dict(), "silent": outcome.drift.silent, "upstream": outcome.drift.upstream}


def _load() -> dict[str, str]:
    """Import every module that a drift waits for; returns what failed."""
    modules = sorted({drift.module for drift in catalogue()})
    # Only the consumers' modules, speculators' and our worker's: vLLM's are imported by them, if at all.
    found = {name: _import(name) for name in modules if name.startswith(("speculators.", "speculators_compat."))}
    return {name: problem for name, problem in found.items() if problem}


def _import(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
