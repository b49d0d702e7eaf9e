"""A signature: parameters, and what becomes of other keywords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Extra", "Kind", "Parameter", "Signature"]

Kind = Literal["positional-only", "positional", "keyword-only"]
# What becomes of a keyword that is not in the signature.
Extra = Literal["error", "forbidden", "ignored", "accepted"]

LONGEST = 8  # parameters that a message shows


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        name: Its name.
        kind: How it can be given.
        default: Source text of its default; None if it is required.
        annotation: Source text of its annotation, or "".
    """

    name: str
    kind: Kind
    default: str | None
    annotation: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is None


@dataclass(frozen=True)
class Signature:
    """What a callable takes.

    Attributes:
        symbol: Dotted name of the callable.
        parameters: In order, without the receiver.
        any_positional: Whether further positional arguments are taken.
        extra: What becomes of keywords that are not parameters.
        accepts: Keywords that are taken although they are no parameters.
        where: ``file:line`` in the API's sources.
        returns: Source text of the return annotation, or "".
    """

    symbol: str
    parameters: tuple[Parameter, ...]
    any_positional: bool = False
    extra: Extra = "error"
    accepts: frozenset[str] = frozenset()
    where: str = ""
    returns: str = ""

    def text(self) -> str:
        """The parameters as Python writes them."""
        shown = [f"{p.name}={p.default}" if not p.required else p.name for p in self.parameters]
        if len(shown) > LONGEST:
            shown = [*shown[:LONGEST], f"{len(shown) - LONGEST} more"]
        return f"({', '.join(shown)}{', **kwargs' if self.extra == 'accepted' else ''})"

    def get(self, name: str) -> Parameter | None:
        """The parameter of this name."""
        return next((parameter for parameter in self.parameters if parameter.name == name), None)
