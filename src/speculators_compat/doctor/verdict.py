"""Ready or not, from the facts, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["CANNOT_TELL", "EXIT_CODES", "NOT_READY", "READY", "of"]

READY, NOT_READY, CANNOT_TELL = "ready", "not ready", "cannot tell"
EXIT_CODES = {READY: 0, NOT_READY: 1, CANNOT_TELL: 2}


def of(facts: dict[str, Any]) -> dict[str, Any]:
    """Judge the facts.

    Args:
        facts: As :func:`.facts.collect` gathers them.

    Returns:
        ``verdict``; ``reasons``, why it is not ``ready``; ``next``, what to do.
    """
    if facts["pair"]["state"] == "incomplete":
        return {"verdict": CANNOT_TELL, "reasons": [facts["pair"]["words"]], "next": [_install(facts["versions"])]}
    judged = [*_against(facts)]
    advice = [hazard["next"] for hazard in facts["hazards"]]
    if judged:
        verdict, reasons = NOT_READY, [reason for reason, _ in judged]
    elif not facts["loaded"]:
        verdict, reasons = CANNOT_TELL, ["nothing was imported: drifts that wait are not settled"]
    else:
        verdict, reasons = READY, []
    steps = [*(step for _, step in judged), *advice, *_onward(facts, verdict)]
    return {"verdict": verdict, "reasons": reasons, "next": list(dict.fromkeys(steps))}


def _install(found: dict[str, Any]) -> str:
    if not found["vllm"]["version"]:
        return "Run this in the environment that has vLLM."
    return "Install speculators beside this vLLM: speculators-compat install speculators==0.4.0.1"


def _against(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each reason why it is not ready, with what to do about it."""
    pair = "Install a pair that is recorded as passed: docs/compatibility.md."
    for module, error in facts["problems"].items():
        yield f"cannot import {module}: {error}", f"Make `python -c 'import {module}'` work, or: {pair}"
    for drift in facts["drifts"]:
        if drift["state"] == "blocked":
            yield f"{drift['id']} is blocked: {drift['reason']}", pair
    if facts["pair"]["state"] == "failed":
        yield f"this pair {facts['pair']['words'].removeprefix('its ')}", pair
    audit = facts["audit"]
    if audit and audit["unmended"]:
        count = len(audit["unmended"])
        yield (
            f"no drift mends {count} mismatch{'es' if count > 1 else ''} of this newer vLLM",
            "See them with speculators-compat audit; docs/adding-a-release.md says how a drift is written.",
        )
    for hazard in facts["hazards"]:
        if hazard["level"] == "problem":
            yield hazard["text"], hazard["next"]
    yield from _workers(facts["workers"])


def _workers(asked: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if asked is None:
        return
    if asked["error"]:
        yield f"the workers: {asked['error']}", "Read the last lines of the engine's output, above."
    for worker in asked["workers"]:
        if not worker["shim"]["active"]:
            yield f"the shim is not active in worker {worker['rank']}", "Unset SPECULATORS_COMPAT."
    for name, states in [("the main process", asked["main"])] + [
        (f"worker {worker['rank']}", worker["drifts"]) for worker in asked["workers"]
    ]:
        for drift in states:
            if drift["state"] == "blocked":
                yield f"{drift['id']} is blocked in {name}: {drift['reason']}", "See the reason."


def _onward(facts: dict[str, Any], verdict: str) -> Iterator[str]:
    """What a reader with this verdict does next."""
    if verdict == CANNOT_TELL:
        yield "Run speculators-compat doctor without --no-load."
    elif verdict == READY and facts["workers"] is None:
        yield "Try it on a tiny model: speculators-compat doctor --workers"
    elif verdict == READY:
        yield "Go on: speculators-compat demo, or your own configuration with speculators-compat plan."
