"""What an audit finds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

__all__ = ["Finding", "Severity", "Site", "Use"]


class Severity(str, Enum):
    """When a mismatch shows."""

    IMPORT = "import"
    START = "start"
    RUN = "run"
    SILENT = "silent"
    NOTE = "note"

    @property
    def words(self) -> str:
        """For people."""
        return {
            "import": "fails at import",
            "start": "fails at start",
            "run": "fails at run",
            "silent": "silently wrong",
            "note": "note",
        }[self.value]


ORDER = list(Severity)


@dataclass(frozen=True)
class Site:
    """A place in the audited code.

    Attributes:
        path: File, relative to the folder that holds the package.
        line: First line, from 1.
        column: Column, from 1.
        function: Qualified name of the function, ``<module>`` at module level.
        code: The source line, stripped.
    """

    path: str
    line: int
    column: int
    function: str
    code: str


@dataclass(frozen=True)
class Use:
    """One use of the API that the audit could follow.

    Attributes:
        kind: ``import``, ``call``, ``attribute`` or ``rpc``.
        site: Where.
        expression: Source text of what is used: with path and function the key that survives a release.
        symbol: Dotted name of what it is in the API.
        signature: For calls: what it takes.
        call: For calls: what is passed.
        subscripted: For calls: whether the result is indexed by a number.
    """

    kind: str
    site: Site
    expression: str
    symbol: str
    signature: Any = None
    call: Any = None
    subscripted: bool = False

    @property
    def key(self) -> str:
        """Identifies the use across releases of the API."""
        return f"{self.site.path}::{self.site.function}::{self.kind}::{self.expression}"


@dataclass(frozen=True)
class Finding:
    """One mismatch.

    Attributes:
        kind: What kind; docs/audit.md lists them.
        symbol: Dotted name of what is used in the API.
        name: The argument, attribute or method in question.
        site: Where.
        passes: What the code does.
        wants: What the API wants, or has instead.
        severity: When it shows.
        hint: Where it went, or what it may be called now.
        applies_to: Architectures for which it holds; empty for all.
        drift: Id of the drift that mends it, or None.
        state: ``mended``, or why it is not.
        releases: Labels of the API's sources in which it was found.
        since: The first of them.
    """

    kind: str
    symbol: str
    name: str
    site: Site
    passes: str
    wants: str
    severity: Severity
    hint: str = ""
    applies_to: tuple[str, ...] = ()
    drift: str | None = None
    state: str = "no drift"
    releases: tuple[str, ...] = ()
    since: str = ""
    related: tuple[str, ...] = field(default=())

    @property
    def mended(self) -> bool:
        """Whether a drift mends it in this pair."""
        return self.state == "mended"

    @property
    def key(self) -> tuple[Any, ...]:
        """The same mismatch in another release has the same key."""
        return (self.kind, self.name, self.site.path, self.site.line, self.site.column, self.applies_to)

    @property
    def counts(self) -> bool:
        """Whether it is a mismatch, not a note."""
        return self.severity is not Severity.NOTE

    def sort_key(self) -> tuple[Any, ...]:
        """Severest first, then by place."""
        return (ORDER.index(self.severity), self.site.path, self.site.line, self.site.column, self.kind, self.name)

    def with_(self, **changes: Any) -> Finding:
        """A copy with changes."""
        return replace(self, **changes)
