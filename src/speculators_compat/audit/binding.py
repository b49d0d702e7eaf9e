"""One call held against one signature."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .signature import Signature

__all__ = ["Call", "Problem", "bound_names", "problems", "read_call"]


@dataclass(frozen=True)
class Call:
    """What a call passes.

    Attributes:
        positional: Number of positional arguments.
        keywords: Names of keyword arguments.
        more_positional: Whether a ``*`` passes an unknown number more.
        more_keywords: Whether a ``**`` passes unknown keywords.
    """

    positional: int
    keywords: tuple[str, ...]
    more_positional: bool = False
    more_keywords: bool = False

    def text(self) -> str:
        """The call's arguments by position and name."""
        shown = ["..."] * self.positional + (["*..."] if self.more_positional else [])
        shown += [f"{name}=..." for name in self.keywords] + (["**..."] if self.more_keywords else [])
        return f"({', '.join(shown)})"


@dataclass(frozen=True)
class Problem:
    """Why the call does not fit: ``kind`` of a finding, and the argument."""

    kind: str
    name: str


def read_call(node: ast.Call, expanded: dict[str, frozenset[str] | None]) -> Call:
    """Read a call's arguments.

    Args:
        node: The call.
        expanded: Keys of each ``**expression``, by its text; None where they are not known.
    """
    positional = 0
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            break
        positional += 1
    names = [keyword.arg for keyword in node.keywords if keyword.arg]
    unknown = False
    for keyword in node.keywords:
        if keyword.arg is None:
            keys = expanded.get(ast.unparse(keyword.value))
            unknown = unknown or keys is None
            names += sorted(keys or ())
    return Call(positional, tuple(names), positional < len(node.args), unknown)


def problems(call: Call, signature: Signature) -> Iterator[Problem]:
    """Every reason why the call does not fit the signature, or is not taken as it was meant."""
    by_position = [p for p in signature.parameters if p.kind != "keyword-only"]
    if call.positional > len(by_position) and not signature.any_positional:
        yield Problem("too-many-arguments", str(call.positional))
    taken = {parameter.name for parameter in by_position[: call.positional]}
    for name in call.keywords:
        parameter = signature.get(name)
        if parameter is not None and parameter.kind != "positional-only":
            if name in taken:
                yield Problem("repeated-argument", name)
            continue
        if name not in signature.accepts and signature.extra != "accepted":
            yield Problem("ignored-argument" if signature.extra == "ignored" else "unexpected-argument", name)
    if call.more_positional or call.more_keywords:
        return
    for parameter in signature.parameters:
        if parameter.required and parameter.name not in taken and parameter.name not in call.keywords:
            yield Problem("missing-argument", parameter.name)


def bound_names(call: Call, signature: Signature) -> list[str]:
    """Names of the parameters that the positional arguments become."""
    return [p.name for p in signature.parameters if p.kind != "keyword-only"][: call.positional]
