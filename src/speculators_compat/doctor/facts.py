"""The facts, gathered: ``--json`` prints them as they are. docs/doctor.md lists the fields."""

from __future__ import annotations

import contextlib
import importlib
import platform
import sys
from typing import Any

from .. import activation, matrix, versions
from ..drift import Outcome, UsageError
from ..drifts import catalogue
from ..restored import concerns
from . import hazards, verdict
from .bugform import bug_form

__all__ = ["SCHEMA_VERSION", "collect"]

# Changes when a field is renamed, removed, or means something else, not when one is added.
SCHEMA_VERSION = 1
PAIR = ("vllm", "speculators")
PACKAGES = (*PAIR, "torch", "transformers")


def collect(load: bool = False, workers: bool = False) -> dict[str, Any]:
    """Gather the facts.

    Args:
        load: Import speculators' modules first, so that drifts that wait for them are settled.
        workers: Start a worker on a tiny model and ask it.

    Returns:
        Plain data, as docs/doctor.md describes it.

    Raises:
        UsageError: Workers are asked for where vLLM or speculators is not installed.
    """
    absent = [name for name in PAIR if versions.installed(name) is None]
    if workers and absent:
        raise UsageError(
            "Workers need vLLM and speculators.",
            f"no {' and no '.join(absent)} in this environment",
            "Activate the environment that has them.",
        )
    # vLLM's log goes to standard output, which is the report's.
    with contextlib.redirect_stdout(sys.stderr):
        problems = _load() if load and not absent else {}
        asked = _ask() if workers else None
    pair = _pair()
    files = hazards.of_files([name for name in PAIR if name not in absent])
    facts = {
        "schema_version": SCHEMA_VERSION,
        "environment": bug_form(asked["model"] if asked else None),
        "versions": _versions(),
        "pair": pair,
        "drifts": [_drift(outcome) for outcome in activation.outcomes()],
        "problems": problems,
        "audit": _audit() if pair["state"] == "newer" else None,
        "workers": asked,
        "files": files,
        "hazards": hazards.find(files),
        "loaded": load and not absent,
    }
    return {**facts, **verdict.of(facts)}


def _versions() -> dict[str, dict[str, Any]]:
    from .. import __version__

    found: dict[str, dict[str, Any]] = {"speculators_compat": {"version": __version__, "distribution": None}}
    for name in PACKAGES:
        item = versions.installed(name)
        found[name] = {
            "version": item.version if item else None,
            "distribution": item.distribution if item and item.distribution != name else None,
        }
    found["python"] = {"version": platform.python_version(), "distribution": None}
    found["system"] = {"version": platform.platform(), "distribution": None}
    return found


def _pair() -> dict[str, Any]:
    vllm, speculators = (versions.installed(name) for name in PAIR)
    if vllm is None or speculators is None:
        words = "vLLM and speculators must both be installed"
        return {"state": "incomplete", "words": words, "row": None, "record": None}
    found = matrix.standing(vllm.version, speculators.version)
    build = "" if vllm.is_plain_release or found.row is None else f" (release {vllm.release}; this build itself is not)"
    return {"state": found.state, "words": found.words + build, "row": found.row, "record": found.record}


def _drift(outcome: Outcome) -> dict[str, Any]:
    return {**outcome.as_dict(), "silent": outcome.drift.silent, "upstream": outcome.drift.upstream}


def _load() -> dict[str, str]:
    """Import every module that a drift of the installed speculators waits for; returns what failed."""
    installed = versions.installed("speculators")
    release = installed.version if installed else "unknown"
    modules = sorted({drift.module for drift in catalogue() if concerns(drift, release)})
    # Only the consumers' modules, speculators' and our worker's: vLLM's are imported by them, if at all.
    found = {name: _import(name) for name in modules if name.startswith(("speculators.", "speculators_compat."))}
    return {name: problem for name, problem in found.items() if problem}


def _import(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _ask() -> dict[str, Any]:
    from .workers import ask

    return ask()


def _audit() -> dict[str, Any]:
    """What sources alone say of a vLLM that no test has seen."""
    from ..audit.compare import audit
    from ..audit.output import as_dict
    from ..audit.sources import open_source

    try:
        report = audit(open_source("speculators", "installed"), [open_source("vllm", "installed")])
    except UsageError as error:
        return {"error": str(error), "summary": None, "unmended": []}
    unmended = {finding.key for finding in report.unmended}
    rows = zip(report.findings, as_dict(report)["findings"], strict=True)
    return {
        "error": "",
        "summary": report.summary(),
        "unmended": [row for finding, row in rows if finding.key in unmended],
    }
