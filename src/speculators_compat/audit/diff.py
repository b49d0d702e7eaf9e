"""What changed between two releases of the API, for the call sites of one caller alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .binding import bound_names
from .compare import MODELS, check_pair
from .findings import Finding, Site, Use
from .output import SCHEMA_VERSION
from .signature import Parameter, Signature
from .sources import Source

__all__ = ["Change", "Difference", "compare_releases"]


@dataclass(frozen=True)
class Change:
    """One difference that a call site sees.

    Attributes:
        site: The call site.
        symbol: What it uses.
        change: What changed, in words.
        breaks: Whether the call site no longer fits.
    """

    site: Site
    symbol: str
    change: str
    breaks: bool = False


@dataclass
class Difference:
    """All changes from one release to another."""

    caller: Source
    old: Source
    new: Source
    changes: list[Change]

    @property
    def breaks(self) -> bool:
        """Whether any call site no longer fits."""
        return any(change.breaks for change in self.changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as docs/audit.md describes it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "caller": self.caller.label,
            "old": self.old.label,
            "new": self.new.label,
            "changes": [
                {
                    "path": c.site.path, "line": c.site.line, "code": c.site.code, "symbol": c.symbol,
                    "change": c.change, "breaks": c.breaks,
                }
                for c in self.changes
            ],
        }  # fmt: skip

    def as_markdown(self) -> str:
        """A table."""
        lines = [f"## {self.caller.label}: {self.old.label} to {self.new.label}", ""]
        lines += ["| where | symbol | change | breaks |", "|---|---|---|---|"]
        for c in self.changes:
            text = c.change.replace("|", "\\|")
            lines.append(f"| {c.site.path}:{c.site.line} | `{c.symbol}` | {text} | {'yes' if c.breaks else ''} |")
        return "\n".join(lines) + "\n"

    def as_renderable(self) -> Any:
        """For a terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.old.label} to {self.new.label}", title_justify="left", show_lines=True)
        for header in ("where", "symbol", "change", "breaks"):
            table.add_column(header, overflow="fold")
        for c in self.changes:
            cells = (f"{c.site.path}:{c.site.line}", c.symbol, c.change, "yes" if c.breaks else "")
            table.add_row(*(Text(cell) for cell in cells))
        breaking = sum(change.breaks for change in self.changes)
        return Group(table, Text(f"{self.caller.label}: {len(self.changes)} changes, {breaking} break a call site"))


def compare_releases(caller: Source, old: Source, new: Source, models: Sequence[str] = MODELS) -> Difference:
    """Compare two releases as the caller sees them.

    Args:
        caller: The code whose call sites matter.
        old: The release that it may have been written for.
        new: The other release.
        models: Model classes that stand for a loaded model.

    Returns:
        The changes, by place.

    Raises:
        UsageError: A source cannot be read.
    """
    before, broken_before = check_pair(caller, old, models)
    after, broken_after = check_pair(caller, new, models)
    known = {finding.key for finding in broken_before}
    fresh = [finding for finding in broken_after if finding.key not in known and finding.counts]
    gone = {finding.key for finding in broken_after}
    mended = [finding for finding in broken_before if finding.key not in gone and finding.counts]
    changes = [_broken(finding) for finding in fresh]
    changes += [Change(f.site, f.symbol, f"fits now: {f.passes}") for f in mended]
    uses = {use.key: use for use in after.uses}
    for use in before.uses:
        if use.key in uses:
            changes += [Change(use.site, use.symbol, text) for text in _texts(use, uses[use.key])]
    unique = {(c.site.path, c.site.line, c.symbol, c.change): c for c in changes}
    ordered = sorted(unique.values(), key=lambda c: (c.site.path, c.site.line, not c.breaks, c.change))
    return Difference(caller, old, new, ordered)


def _broken(finding: Finding) -> Change:
    hint = f"; {finding.hint}" if finding.hint else ""
    mends = f" (mended by {finding.drift})" if finding.mended else ""
    return Change(finding.site, finding.symbol, f"{finding.passes}; {finding.wants}{hint}{mends}", not finding.mended)


def _texts(old: Use, new: Use) -> Iterator[str]:
    if old.symbol != new.symbol:
        yield f"is {new.symbol} now"
    if isinstance(old.signature, Signature) and isinstance(new.signature, Signature):
        yield from _signature_texts(old, old.signature, new.signature)


def _signature_texts(use: Use, old: Signature, new: Signature) -> Iterator[str]:
    before = {parameter.name: parameter for parameter in old.parameters}
    after = {parameter.name: parameter for parameter in new.parameters}
    added = [_parameter(after[name]) for name in after if name not in before]
    removed = [name for name in before if name not in after]
    if added:
        yield f"takes {', '.join(added)} too"
    if removed:
        yield f"no longer takes {', '.join(removed)}"
    for name in [name for name in after if name in before]:
        if before[name].default != after[name].default:
            yield f"{name}: {_default(before[name])}, now {_default(after[name])}"
    if use.call is not None and bound_names(use.call, old) != bound_names(use.call, new):
        now, then = (", ".join(bound_names(use.call, signature)) for signature in (new, old))
        yield f"positional arguments are {now}, were {then}"
    if old.returns != new.returns:
        yield f"returns {new.returns or 'anything'}, returned {old.returns or 'anything'}"
    if old.extra != new.extra:
        yield f"unknown keywords: {new.extra}, were {old.extra}"


def _parameter(parameter: Parameter) -> str:
    return parameter.name if parameter.required else f"{parameter.name}={parameter.default}"


def _default(parameter: Parameter) -> str:
    return "required" if parameter.required else f"default {parameter.default}"
