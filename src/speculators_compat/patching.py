"""The only code that sets attributes on foreign objects: resolve all, then apply, with a journal and an exact undo.

The journal keeps each owner's *raw* dictionary value (a staticmethod object, not the function inside it) and whether
the owner had it at all, so that undoing restores the identical object and never leaves an inherited attribute behind
as an own one.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .drift import MISSING, Site

__all__ = ["Entry", "SiteError", "apply", "claimed_by", "restore"]

log = logging.getLogger("speculators_compat")

_claims: dict[tuple[int, str], str] = {}


class SiteError(Exception):
    """A site cannot be changed as declared: its owner or attribute is missing, taken, or unexpectedly there."""


@dataclass(frozen=True)
class Entry:
    """One line of the journal: what stood at ``owner.name`` before, and what was put there."""

    owner: Any
    name: str
    raw: Any
    value: Any
    was_own: bool
    claim: bool


@dataclass(frozen=True)
class _Resolved:
    site: Site
    owner: Any
    name: str
    raw: Any
    was_own: bool


def apply(sites: Iterable[Site], owner_id: str) -> list[Entry]:
    """Change every site or none.

    Args:
        sites: The sites of one drift.
        owner_id: The drift's id, named in the error when a later drift claims the same attribute.

    Returns:
        The journal, to be handed to :func:`restore`.

    Raises:
        SiteError: A site is missing, taken or unexpectedly present. Nothing has been changed.
    """
    resolved = [_resolve(site) for site in sites]
    for item in resolved:
        _check_claim(item)
    if len({(id(item.owner), item.name) for item in resolved}) != len(resolved):
        raise SiteError(f"{owner_id} names one attribute twice")
    # All new values are built before the first is written: a factory that raises leaves nothing half applied.
    values = [item.site.value(item.raw if item.was_own else _inherited(item), owner_id) for item in resolved]
    journal: list[Entry] = []
    try:
        for item, value in zip(resolved, values, strict=True):
            _write(item, value, owner_id, journal)
    except Exception as error:
        restore(journal)
        raise SiteError(f"{type(error).__name__} while writing {owner_id}: {error}") from error
    return journal


def restore(journal: list[Entry]) -> None:
    """Put back every object of the journal, last written first, and empty it.

    What somebody else has put in place of ours since then is theirs and stays.
    """
    while journal:
        entry = journal.pop()
        if vars(entry.owner).get(entry.name, MISSING) is not entry.value:
            log.warning("%s of %r was changed by other code and is left as it is", entry.name, entry.owner)
        elif entry.was_own:
            setattr(entry.owner, entry.name, entry.raw)
        else:
            delattr(entry.owner, entry.name)
        if entry.claim:
            _claims.pop((id(entry.owner), entry.name), None)


def claimed_by(owner: Any, name: str) -> str | None:
    """Id of the drift that substituted ``owner.name``, or None."""
    return _claims.get((id(owner), name))


def _resolve(site: Site) -> _Resolved:
    owner: Any = sys.modules.get(site.module)
    if owner is None:
        raise SiteError(f"module {site.module} is not imported")
    *parents, name = site.path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, MISSING)
        if owner is MISSING:
            raise SiteError(f"{site.module}:{site.path} does not exist ({parent!r} is missing)")
    raw = vars(owner).get(name, MISSING)
    was_own = raw is not MISSING
    exists = was_own or inspect.getattr_static(owner, name, MISSING) is not MISSING
    if site.mode == "supply" and exists:
        raise SiteError(f"{site.target} already exists; it was expected to be missing")
    if site.mode != "supply" and not exists:
        raise SiteError(f"{site.target} does not exist")
    return _Resolved(site, owner, name, raw, was_own)


def _inherited(item: _Resolved) -> Any:
    """The value that a wrapper builds on when the owner only inherits the attribute."""
    return inspect.getattr_static(item.owner, item.name, MISSING)


def _check_claim(item: _Resolved) -> None:
    first = claimed_by(item.owner, item.name)
    if first is not None and item.site.mode == "substitute":
        raise SiteError(f"{item.site.target} is already substituted by {first!r}")


def _write(item: _Resolved, value: Any, owner_id: str, journal: list[Entry]) -> None:
    claim = item.site.mode == "substitute"
    setattr(item.owner, item.name, value)
    journal.append(Entry(item.owner, item.name, item.raw, value, item.was_own, claim))
    if claim:
        _claims[(id(item.owner), item.name)] = owner_id
