"""Findings and the drifts that mend them; and what only a drift's record knows of a use.

The facts are in ``records.toml``, beside the drifts rather than in them: what a *static reader* sees of a drift is the
audit's business.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from ..drift import Drift
from ..drifts import catalogue
from ..versions import in_range, matches
from .collect import Collected
from .findings import Finding, Severity, Site, Use
from .names import MISSING
from .sources import Source
from .values import ClassObject

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

__all__ = ["MENDED", "behaviours", "linked", "records"]

MENDED = "mended"
# Drifts change names in modules of this package alone.
PATCHED_PACKAGE = "speculators"


@functools.lru_cache(maxsize=1)
def _written() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("records.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = tomllib.loads(text)
    return found


def records() -> dict[str, dict[str, Any]]:
    """Drift id to its record, as written."""
    return _written()["drift"]


def linked(finding: Finding, caller: Source, api: Source) -> Finding:
    """The finding with the drift that concerns it, and whether that mends it in this pair."""
    reason = _written()["harmless"].get(described(finding))
    if reason:
        return finding.with_(severity=Severity.NOTE, hint=reason)
    named = [finding.drift] if finding.drift else [name for name, item in records().items() if _concerns(item, finding)]
    states = {name: _state(_drifts().get(name), name, caller, api) for name in named}
    if not states:
        return finding
    # Of several, for instance one for each speculators, the one that is for this pair.
    drift_id = next((name for name, state in states.items() if state == MENDED), next(iter(states)))
    severity = records().get(drift_id, {}).get("severity")
    if severity and finding.kind != "changed-behaviour":
        finding = finding.with_(severity=Severity(severity))
    return finding.with_(drift=drift_id, state=states[drift_id])


def behaviours(found: Collected, caller: Source, api: Source) -> Iterator[Finding]:
    """Uses that mean something else in this API than the code takes them for."""
    for name, record in records().items():
        behaviour = record.get("behaviour")
        drift = _drifts().get(name)
        if behaviour and _holds(behaviour, drift, found, api):
            yield from _matching(name, behaviour, found)


@dataclass(frozen=True)
class _Seen:
    """A use, of the API or of another package."""

    text: str
    symbol: str
    site: Site
    call: Any
    subscripted: bool = False


def _seen(found: Collected) -> Iterator[_Seen]:
    for use in found.uses:
        yield _Seen(f"{use.kind} {tail(use)}", use.symbol, use.site, use.call, use.subscripted)
    for name, site, call in found.external:
        yield _Seen(f"external {name}", name, site, call)


def tail(use: Use) -> str:
    """Owner and name: the last parts of a symbol that say what it is, ``CacheConfig`` for a constructor."""
    parts = use.symbol.removesuffix(".__init__").split(".")
    is_class = use.kind == "call" and parts[-1][:1].isupper()
    return parts[-1] if is_class else ".".join(parts[-2:])


def _holds(behaviour: dict[str, Any], drift: Drift | None, found: Collected, api: Source) -> bool:
    """Whether the API is one of those that behave so."""
    if behaviour.get("in_range") and (drift is None or in_range(api.version, drift.since, drift.until) is False):
        return False
    if not all(_is_present(name, found) for name in behaviour.get("present", ())):
        return False
    pattern = behaviour.get("unless_uses")
    return not (pattern and any(fnmatchcase(seen.text, pattern) for seen in _seen(found)))


def _is_present(name: str, found: Collected) -> bool:
    """Whether the API has a class (by module and name), or an attribute of a class."""
    inference = found.collector
    base, _, attribute = name.rpartition(".")
    if inference.program.exists(base):
        return inference.from_import(base, attribute) != MISSING
    module, _, cls = base.rpartition(".")
    classes = [atom for atom in inference.from_import(module, cls) if isinstance(atom, ClassObject)]
    return any(inference.members.home(atom.cls, attribute) is not None for atom in classes)


def _matching(name: str, behaviour: dict[str, Any], found: Collected) -> Iterator[Finding]:
    for seen in _seen(found):
        if not fnmatchcase(seen.text, behaviour["uses"]):
            continue
        keywords = seen.call.keywords if seen.call is not None else ()
        if "passes" in behaviour and behaviour["passes"] not in keywords:
            continue
        if "omits" in behaviour and behaviour["omits"] in keywords:
            continue
        if behaviour.get("subscripted") and not seen.subscripted:
            continue
        passed = behaviour.get("passes")
        yield Finding(
            "changed-behaviour", seen.symbol, passed or seen.symbol.rpartition(".")[2], seen.site,
            f"uses {'.'.join(seen.symbol.split('.')[-2:])}{f' with {passed}' if passed else ''}", behaviour["wants"],
            Severity(behaviour["severity"]), drift=name,
            applies_to=(behaviour["applies_to"],) if "applies_to" in behaviour else (),
        )  # fmt: skip


def _concerns(record: dict[str, Any], finding: Finding) -> bool:
    return any(fnmatchcase(described(finding), pattern) for pattern in record.get("finds", ()))


def described(finding: Finding) -> str:
    """Kind, then ``Owner.attribute`` or ``Callable(argument)``: what patterns of records match."""
    parts = finding.symbol.removesuffix(".__init__").split(".")
    if finding.kind.endswith(("argument", "arguments", "default")):
        return f"{finding.kind} {parts[-1]}({finding.name})"
    if finding.kind == "refused-by-guard":
        return f"{finding.kind} {finding.name}"
    return f"{finding.kind} {'.'.join(parts[-2:])}"


@functools.lru_cache(maxsize=1)
def _drifts() -> dict[str, Drift]:
    return {drift.id: drift for drift in catalogue()}


def _state(drift: Drift | None, drift_id: str, caller: Source, api: Source) -> str:
    """``mended``, or why the drift does not mend it here."""
    if drift is None:
        return "no drift"
    if caller.package != PATCHED_PACKAGE:
        return f"the drift patches {PATCHED_PACKAGE}, not this code"
    from ..activation import switched_off

    if switched_off(drift_id):
        return "off"
    if matches(caller.version, drift.speculators) is False:
        return f"out of range: {caller.label} is not in {drift.speculators}"
    if in_range(api.version, drift.since, drift.until) is False:
        return f"out of range: {api.label} is not in {drift.since or 'any'} to {drift.until or 'open'}"
    return MENDED
