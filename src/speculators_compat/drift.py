"""The record of one incompatibility, its states, and the one error type.

A *drift* is one place where an upstream moved and a caller did not. Its facts (symptom, call site, release
range, upstream link, probe) stand beside its fix as plain data, so that activation, ``doctor``, the docs and
the tests all read the same record. Nothing here performs I/O, imports an upstream or sets an attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

__all__ = [
    "MISSING",
    "Drift",
    "DriftError",
    "Outcome",
    "RemovedNameError",
    "Site",
    "State",
    "UsageError",
    "substitute",
    "supply",
    "wrap",
]

Process = Literal["main", "worker", "both"]
Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


class _Missing:
    """Marks "no such attribute", which is not the same as an attribute that is None."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class State(str, Enum):
    """What became of a drift in this process."""

    APPLIED = "applied"
    NOT_NEEDED = "not needed"
    WAITING = "waiting"
    BLOCKED = "blocked"
    OFF = "off"


@dataclass(frozen=True)
class Site:
    """One attribute that a fix changes.

    Attributes:
        target: ``"package.module:attribute"`` or ``"package.module:Class.attribute"``.
        make: Called with the attribute's raw value (``MISSING`` for ``supply``), returns the new value.
        mode: ``wrap`` builds on what is there and may be stacked by several drifts; ``substitute`` does not
            call the old value, so a second drift may not claim the same attribute; ``supply`` adds a name
            that must not exist yet.
        wrapper: What ``wrap`` puts around the callable; an exception that passes it gets a note with the drift's id.
    """

    target: str
    make: Callable[[Any], Any]
    mode: Literal["wrap", "substitute", "supply"]
    wrapper: Wrapper | None = None

    def value(self, original: Any, drift_id: str) -> Any:
        """The new value of the attribute whose raw value is ``original``."""
        if self.wrapper is None:
            return self.make(original)
        import wrapt

        return wrapt.FunctionWrapper(original, _noting(self.wrapper, drift_id))

    @property
    def module(self) -> str:
        """Dotted name of the module that holds the attribute."""
        return self.target.partition(":")[0]

    @property
    def path(self) -> str:
        """Attribute path inside the module."""
        return self.target.partition(":")[2]


def _noting(wrapper: Wrapper, drift_id: str) -> Wrapper:
    def call(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return wrapper(wrapped, instance, args, kwargs)
        except Exception as error:
            from . import notes

            notes.add(error, drift_id)
            raise

    return call


def wrap(target: str, wrapper: Wrapper) -> Site:
    """A site whose callable is wrapped; ``wrapper`` has wrapt's arguments (wrapped, instance, args, kwargs)."""

    def make(original: Any) -> Any:
        import wrapt

        return wrapt.FunctionWrapper(original, wrapper)

    return Site(target, make, "wrap", wrapper)


def substitute(target: str, make: Callable[[Any], Any]) -> Site:
    """A site that takes the value ``make(original)``; only one drift may claim it."""
    return Site(target, make, "substitute")


def supply(target: str, make: Callable[[Any], Any]) -> Site:
    """A name that is absent upstream and must be added; its presence is an error, not a success."""
    return Site(target, make, "supply")


@dataclass(frozen=True)
class Drift:
    """One incompatibility: its facts and its fix.

    Attributes:
        id: Equal to the file name under ``drifts/``; what ``SPECULATORS_COMPAT_DISABLE`` takes.
        title: One line for tables.
        symptom: First line of the error as a run showed it, or what is silently wrong.
        silent: True if nothing fails without the fix, only the data are wrong.
        call_site: Where speculators meets it, ``file:name``.
        speculators: PEP 440 range of speculators releases that have this call site.
        since: First vLLM release that needs the fix; None for "not bound to vLLM's release".
        until: First vLLM release that does not need it any more; None for "still needed".
        upstream: Link to the change, the file or the issue that causes it.
        process: Where it strikes.
        probe: Asks the imported things themselves whether the fix is needed. Called only after the module of
            the first site has been imported. None: the release range alone decides.
        sites: What the fix changes; the module of the first site triggers it.
        tripwire: Callable that the user will call; made to raise when the drift is blocked.
        requires: Ids that must be applied for this fix to work.
    """

    id: str
    title: str
    symptom: str
    call_site: str
    speculators: str
    since: str | None
    until: str | None
    upstream: str
    sites: tuple[Site, ...]
    silent: bool = False
    process: Process = "main"
    probe: Callable[[], bool] | None = None
    tripwire: str = "speculators.data_generation.vllm_hidden_states_generator:VllmHiddenStatesGenerator.__init__"
    requires: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The consumer's module whose import triggers the fix."""
        return self.sites[0].module


@dataclass
class Outcome:
    """State of one drift in this process, with the reason in words."""

    drift: Drift
    state: State
    reason: str = ""
    undo: list[Any] = field(default_factory=list, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON output."""
        return {"id": self.drift.id, "state": self.state.value, "reason": self.reason, "title": self.drift.title}


class UsageError(ValueError):
    """Bad input: says what was required, what was found, and the way out.

    Args:
        required: What had to hold.
        found: What was there instead.
        way_out: What the reader can do now.
    """

    def __init__(self, required: str, found: str, way_out: str) -> None:
        self.required, self.found, self.way_out = required, found, way_out
        super().__init__(f"{required} Found: {found}. {way_out}")


class RemovedNameError(ImportError):
    """A name that speculators removed and that cannot be restored faithfully; the message says what to use instead.

    An ``ImportError``, so that it passes ``from module import name`` and is caught where optional names are imported.
    """


class DriftError(RuntimeError):
    """A drift that cannot be mended stands in the way of the call being made.

    Args:
        drift_id: The drift's id.
        required: What the fix needed.
        found: What is installed or was found instead.
        way_out: What the reader can do now.
    """

    def __init__(self, drift_id: str, required: str, found: str, way_out: str) -> None:
        self.drift_id, self.required, self.found, self.way_out = drift_id, required, found, way_out
        super().__init__(
            f"[{drift_id}] required: {required}; found: {found}. {way_out} "
            "(speculators-compat doctor shows every drift and its state)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.drift_id, self.required, self.found, self.way_out)
