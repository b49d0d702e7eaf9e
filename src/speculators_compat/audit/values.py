"""What an expression can be, as far as the sources tell.

A value is a set of atoms: one per possibility. The empty set, and any set with ``UNKNOWN`` in it, means that nothing
may be concluded.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ANYTHING",
    "NONE",
    "UNKNOWN",
    "Atom",
    "Class",
    "ClassObject",
    "External",
    "ExternalInstance",
    "Function",
    "FunctionObject",
    "Instance",
    "Mapping",
    "Module",
    "ModuleObject",
    "Partial",
    "Sequence",
    "Text",
    "Value",
    "is_known",
    "join",
    "known",
]


@dataclass(eq=False)
class Module:
    """One parsed module.

    Attributes:
        name: Dotted name.
        path: File, relative to the folder that holds the package.
        tree: Its syntax tree.
        lines: Its source lines.
        is_package: Whether it is an ``__init__.py``.
        bindings: Name to the nodes that bind it at module level, with whether only a type checker sees them.
        stars: Modules that it imports ``*`` from: (level, dotted name).
    """

    name: str
    path: str
    tree: ast.Module
    lines: list[str]
    is_package: bool
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[tuple[int, str]] = field(default_factory=list)


@dataclass(eq=False)
class Binding:
    """One place that binds a name: a definition, an import alias, or an assignment."""

    node: ast.AST
    type_only: bool
    value: ast.expr | None = None
    annotation: ast.expr | None = None
    index: int | None = None  # position in an unpacked tuple
    imported: tuple[int, str, str] | None = None  # level, module, name ("" for a whole module)


@dataclass(eq=False)
class Class:
    """A class of the sources."""

    module: Module
    node: ast.ClassDef
    qualname: str
    scope: Any

    @property
    def symbol(self) -> str:
        """Dotted name."""
        return f"{self.module.name}.{self.qualname}"


@dataclass(eq=False)
class Function:
    """A function or method of the sources."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    qualname: str
    scope: Any
    owner: Class | None = None

    @property
    def symbol(self) -> str:
        """Dotted name."""
        return f"{self.module.name}.{self.qualname}"


@dataclass(frozen=True)
class _Unknown:
    pass


@dataclass(frozen=True)
class _None:
    pass


@dataclass(frozen=True)
class Instance:
    """An object of a class; ``tag`` names the architecture whose possibility it belongs to."""

    cls: Class
    tag: str = ""


@dataclass(frozen=True)
class ClassObject:
    """A class itself."""

    cls: Class


@dataclass(frozen=True)
class FunctionObject:
    """A function; ``bound`` is what its first parameter is given, if anything."""

    function: Function
    bound: Atom | None = None


@dataclass(frozen=True)
class Partial:
    """``functools.partial`` of a function, with the names and the number of arguments that it fills."""

    function: FunctionObject
    positional: int
    names: frozenset[str]


@dataclass(frozen=True)
class ModuleObject:
    """A module of the sources."""

    name: str


@dataclass(frozen=True)
class External:
    """Something of another package, by dotted name."""

    name: str


@dataclass(frozen=True)
class ExternalInstance:
    """An object of another package's class."""

    name: str


@dataclass(frozen=True)
class Text:
    """A string that is known."""

    text: str


@dataclass(frozen=True)
class Sequence:
    """Something that yields items: list, tuple, generator. ``items`` are set for a tuple of known length."""

    item: Value
    items: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class Mapping:
    """A dict; ``keys`` are set where all of them are known."""

    item: Value
    key: Value = frozenset()
    keys: frozenset[str] | None = None


Atom = (
    _Unknown
    | _None
    | Instance
    | ClassObject
    | FunctionObject
    | Partial
    | ModuleObject
    | External
    | ExternalInstance
    | Text
    | Sequence
    | Mapping
)
Value = frozenset[Atom]

UNKNOWN = _Unknown()
NONE = _None()
ANYTHING: Value = frozenset({UNKNOWN})
# More possibilities than a reader could follow are as good as none.
MOST = 24


def join(*values: Value) -> Value:
    """Every possibility of all values; an empty one means unknown."""
    atoms: set[Atom] = set()
    for value in values:
        atoms |= value or ANYTHING
    return frozenset(atoms) if len(atoms) <= MOST else ANYTHING


def known(value: Value) -> list[Atom]:
    """The atoms that are neither None nor unknown."""
    return [atom for atom in value if atom is not UNKNOWN and atom is not NONE]


def is_known(value: Value) -> bool:
    """Whether every possibility is known."""
    return bool(value) and UNKNOWN not in value
