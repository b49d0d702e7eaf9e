"""Catalogue + versions -> import hooks. Decides each drift's state; never raises from a hook.

wrapt removes a post-import hook before it runs it, so a hook that raises fails the import once and the next import
succeeds unpatched. Everything that goes wrong inside a hook therefore becomes a state, and a blocked drift raises at
the *call* that would have met it.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from typing import Any

from . import matrix, notes, patching, restored, trigger, versions
from .drift import Drift, DriftError, Outcome, State, wrap
from .drifts import catalogue

__all__ = ["activate", "deactivate", "is_active", "outcomes", "switched_off"]

log = logging.getLogger("speculators_compat")

# Imported before the shim, these are not late: speculators takes their names when it is imported itself. Our own worker
# extension is one of them: it activates the shim.
EARLY = frozenset({__package__, "datasets", "torch", "transformers", "vllm"})

SWITCH = "SPECULATORS_COMPAT"
DISABLE = "SPECULATORS_COMPAT_DISABLE"

_lock = threading.RLock()
_naming: Any = notes.NamingFinder()
_outcomes: dict[str, Outcome] = {}
_order: list[str] = []  # ids in the order in which they were applied: undo goes backwards
_hooked: set[str] = set()
_active = False
_switched = False  # whether activate() or deactivate() has been called
_said_late = False
_said_newer = False


def is_active() -> bool:
    """Whether the shim is switched on in this process."""
    return _active


def outcomes() -> tuple[Outcome, ...]:
    """State of every drift in this process, sorted by id. Activates the shim if nothing has yet."""
    if not _switched:
        activate()
    with _lock:
        return tuple(_outcomes[drift.id] for drift in catalogue() if drift.id in _outcomes)


def activate() -> tuple[Outcome, ...]:
    """Switch the shim on: register a hook per consumer module, patch what is already imported.

    Activating twice is once. ``SPECULATORS_COMPAT=0`` makes this a no-op that marks every drift off;
    ``SPECULATORS_COMPAT_DISABLE=id,id`` switches single drifts off.

    Returns:
        The state of every drift.
    """
    global _active, _switched
    with _lock:
        _switched, first = True, not _switched
        if _active:
            return outcomes()
        disabled = _disabled()
        for drift in catalogue():
            _outcomes[drift.id] = _initial(drift, disabled)
        if _all_off():
            trigger.disarm()
            return outcomes()
        _active = True
        modules = sorted({drift.module for drift in catalogue()})
        late = [name for name in modules if name in sys.modules and name.partition(".")[0] not in EARLY]
        if late and first:
            _say_late(late)
        for module in modules:
            _hook(module)
        trigger.disarm()
        # In front of wrapt's finder, whose hooks run only after a module could be imported.
        sys.meta_path.insert(0, _naming)
        return outcomes()


def deactivate() -> None:
    """Switch the shim off and restore every patched object exactly."""
    global _active, _switched
    with _lock:
        trigger.disarm()
        _active, _switched = False, True
        if _naming in sys.meta_path:
            sys.meta_path.remove(_naming)
        while _order:
            patching.restore(_outcomes[_order.pop()].undo)
        for outcome in _outcomes.values():
            # Tripwires of blocked drifts are journalled in _order as well; only states remain.
            outcome.state, outcome.reason = State.OFF, "deactivated"


def switched_off(drift_id: str) -> bool:
    """Whether the environment's switches name this drift, or all."""
    return _all_off() or drift_id in _named()


def _all_off() -> bool:
    return os.environ.get(SWITCH, "1") == "0"


def _named() -> set[str]:
    return {name.strip() for name in os.environ.get(DISABLE, "").split(",") if name.strip()}


def _disabled() -> set[str]:
    names = _named()
    unknown = names - {drift.id for drift in catalogue()}
    if unknown:
        log.warning("%s names unknown drifts: %s", DISABLE, ", ".join(sorted(unknown)))
    return names


def _initial(drift: Drift, disabled: set[str]) -> Outcome:
    if _all_off():
        return Outcome(drift, State.OFF, f"{SWITCH}=0")
    if drift.id in disabled:
        return Outcome(drift, State.OFF, f"{DISABLE} names it")
    return Outcome(drift, State.WAITING, f"{drift.module} is not imported yet")


def _hook(module: str) -> None:
    """Patch ``module`` now if it is imported, and make sure its first import patches it."""
    if module in _hooked:
        if module in sys.modules:
            _on_import(sys.modules[module])
        return
    import wrapt

    _hooked.add(module)
    # wrapt calls the hook at once when the module is imported already.
    wrapt.register_post_import_hook(_on_import, module)


def _on_import(module: Any) -> None:
    """The hook: settles every waiting drift of the module. Never raises."""
    with _lock:
        if not _active:
            return
        # A drift that needs others is settled after them.
        for drift in sorted(catalogue(), key=lambda drift: bool(drift.requires)):
            if drift.module == module.__name__ and _outcomes[drift.id].state is State.WAITING:
                try:
                    _settle(drift)
                except Exception as error:  # a hook that raises would leave the next import unpatched
                    _block(drift, f"{type(error).__name__}: {error}")


def _settle(drift: Drift) -> None:
    outcome = _outcomes[drift.id]
    needed, reason = _needed(drift)
    if needed is None:
        _block(drift, reason)
        return
    if not needed:
        outcome.state, outcome.reason = State.NOT_NEEDED, reason
        return
    for required in drift.requires:
        if _outcomes[required].state in (State.OFF, State.BLOCKED):
            _block(drift, f"it needs the drift {required}, which is {_outcomes[required].state.value}")
            return
    try:
        outcome.undo = patching.apply(drift.sites, drift.id)
    except patching.SiteError as error:
        _block(drift, str(error))
        return
    _order.append(drift.id)
    outcome.state, outcome.reason = State.APPLIED, reason


def _needed(drift: Drift) -> tuple[bool | None, str]:
    """Ask the probe, bound it by the release range. None: they disagree on a pair of the matrix."""
    vllm, speculators = versions.installed("vllm"), versions.installed("speculators")
    if speculators is not None:
        release = restored.release_at(drift.call_site, speculators.version)
        if not restored.concerns(drift, speculators.version):
            stands_for = "" if release == speculators.version else f" (this file as in {release})"
            return False, f"speculators {speculators.version}{stands_for} is not in {drift.speculators}"
    version = vllm.version if vllm else "unknown"
    # A drift that no vLLM release bounds (a missing device, an option) is the probe's business alone.
    unbound = drift.since is None and drift.until is None
    expected = None if unbound and drift.probe else versions.in_range(version, drift.since, drift.until)
    if drift.probe is None:
        # Without a probe the range alone decides; an unreadable version is treated as needing the fix.
        return expected is not False, f"vLLM {version}, range {_range(drift)}"
    found = bool(drift.probe())
    if vllm and matrix.is_newer_than_tested(version):
        _say_newer(version)
    if expected is None or expected == found:
        return found, "the probe says it is needed" if found else "the probe says it is not needed"
    if vllm and vllm.is_plain_release and speculators and matrix.has_row(version, speculators.version):
        return None, f"the probe says {found}, the range {_range(drift)} says {expected} for vLLM {version}"
    return found, f"the probe decides ({found}); the range {_range(drift)} does not know vLLM {version}"


def _range(drift: Drift) -> str:
    return f"[{drift.since or 'any'}, {drift.until or 'open'})"


def _block(drift: Drift, reason: str) -> None:
    """Mark a drift blocked and arm its tripwire, so that the call raises instead of meeting the symptom."""
    outcome = _outcomes[drift.id]
    outcome.state, outcome.reason = State.BLOCKED, reason
    log.warning("drift %s is blocked: %s", drift.id, reason)

    def trip(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if outcome.state is State.BLOCKED:
            raise _error(outcome)
        return wrapped(*args, **kwargs)

    site = wrap(drift.tripwire, trip)
    try:
        outcome.undo = patching.apply([site], f"{drift.id} (tripwire)")
        _order.append(drift.id)
    except Exception as error:  # this runs inside an import hook
        log.warning("drift %s: its tripwire cannot be armed: %s", drift.id, error)


def _error(outcome: Outcome) -> DriftError:
    drift = outcome.drift
    found = ", ".join(f"{name} {_version(name)}" for name in ("vllm", "speculators"))
    return DriftError(
        drift.id,
        required=f"{drift.title} (else: {drift.symptom})",
        found=f"{found}; the fix is {outcome.state.value}: {outcome.reason}",
        way_out=f"Install a tested pair (docs/compatibility.md) or, to go on without it, set {DISABLE}={drift.id}.",
    )


@functools.cache
def _version(module: str) -> str:
    found = versions.installed(module)
    return found.version if found else "not installed"


def _say_late(modules: list[str]) -> None:
    global _said_late
    if not _said_late:
        _said_late = True
        log.warning(
            "speculators was imported before speculators_compat; %d imported modules are patched now. Import "
            "speculators_compat first: names that other code has already taken from them keep their old value.",
            len(modules),
        )


def _say_newer(version: str) -> None:
    global _said_newer
    if not _said_newer:
        _said_newer = True
        log.warning(
            "vLLM %s is newer than any tested release (%s): each drift's probe decides. speculators-compat audit lists "
            "every call of speculators that does not fit it.",
            version,
            matrix.newest(),
        )
