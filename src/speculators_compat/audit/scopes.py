"""Where a name is looked up: module, class body, function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .program import block_bindings
from .values import ANYTHING, Binding, Class, Function, FunctionObject, Instance, Module, Value, join

if TYPE_CHECKING:
    from .names import Names

__all__ = [
    "ClassScope",
    "ExpressionScope",
    "FunctionScope",
    "ModuleScope",
    "Scope",
    "WalkScope",
    "every_node",
    "local_statements",
    "parameters_of",
    "walk_scope",
]


class Scope:
    """Names of one block.

    Attributes:
        module: The module that the block is in.
        owner: The class whose method it is, for ``self`` and ``Self``.
        parent: The next scope outwards that Python would ask.
    """

    module: Module
    owner: Class | None = None
    parent: Scope | None = None
    # Whether the block is being walked as code under audit: then what it uses is recorded.
    audited = False

    def own(self, name: str) -> Value | None:
        """The name's value if this block binds it."""
        raise NotImplementedError

    def lookup(self, name: str) -> Value | None:
        """The name's value, from here outwards."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.own(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


class ModuleScope(Scope):
    """The names of a module."""

    def __init__(self, inference: Names, module: Module) -> None:
        self._inference, self.module = inference, module

    def own(self, name: str) -> Value | None:
        """See :class:`Scope`."""
        return self._inference.member_of_module(self.module, name, for_types=True)


class _LazyScope(Scope):
    """A block whose names are worked out on demand, without regard to order."""

    def __init__(self, inference: Names) -> None:
        self._inference = inference
        self._bindings: dict[str, list[Binding]] | None = None
        self._active: set[str] = set()
        self._known: dict[str, Value] = {}

    def _body(self) -> list[ast.stmt]:
        raise NotImplementedError

    def bindings(self) -> dict[str, list[Binding]]:
        """Name to the places that bind it."""
        if self._bindings is None:
            self._bindings = {}
            for name, binding in block_bindings(self._body()):
                self._bindings.setdefault(name, []).append(binding)
        return self._bindings

    def own(self, name: str) -> Value | None:
        """See :class:`Scope`."""
        if name in self._known:
            return self._known[name]
        found = self.bindings().get(name)
        if not found:
            return None
        if name in self._active:
            return frozenset()  # it is being worked out: adds no possibility
        self._active.add(name)
        try:
            values = [value for value in (self._inference.binding(item, self) for item in found) if value]
        finally:
            self._active.discard(name)
        self._known[name] = join(*values) if values else ANYTHING
        return self._known[name]


class ClassScope(_LazyScope):
    """A class body; its methods do not see it."""

    def __init__(self, inference: Names, cls: Class) -> None:
        super().__init__(inference)
        self.module, self.owner, self.parent = cls.module, cls, cls.scope
        self._node = cls.node

    def _body(self) -> list[ast.stmt]:
        return self._node.body


class FunctionScope(_LazyScope):
    """A function that is read, not audited: what its names can be, in whatever order."""

    def __init__(self, inference: Names, function: Function, bound: Any = None) -> None:
        super().__init__(inference)
        self.module, self.owner, self.parent = function.module, function.owner, function.scope
        self._function, self._bound = function, bound

    def _body(self) -> list[ast.stmt]:
        node = self._function.node
        return [] if isinstance(node, ast.Lambda) else node.body

    def own(self, name: str) -> Value | None:
        """See :class:`Scope`."""
        parameter = self._inference.parameter(self._function, name, self._bound)
        assigned = super().own(name)
        if parameter is None:
            return assigned
        return join(parameter, assigned) if assigned else parameter


class ExpressionScope(Scope):
    """Names that an expression binds for itself: comprehension targets, lambda parameters."""

    def __init__(self, parent: Scope) -> None:
        self.module, self.owner, self.parent, self.audited = parent.module, parent.owner, parent, parent.audited
        self.names: dict[str, Value] = {}

    def own(self, name: str) -> Value | None:
        """See :class:`Scope`."""
        return self.names.get(name)


class WalkScope(Scope):
    """What names and attribute paths hold at this point of the walk."""

    audited = True

    def __init__(self, module: Module, parent: Scope | None, owner: Class | None, function: str) -> None:
        self.module, self.parent, self.owner, self.function = module, parent, owner, function
        self.names: dict[str, Value] = {}
        self.paths: dict[str, Value] = {}

    def own(self, name: str) -> Value | None:
        """See :class:`Scope`."""
        return self.names.get(name)

    def fork(self) -> WalkScope:
        """The same knowledge, to be changed on its own."""
        copy = WalkScope(self.module, self.parent, self.owner, self.function)
        copy.names, copy.paths = dict(self.names), dict(self.paths)
        return copy

    def merge(self, scopes: list[WalkScope]) -> None:
        """Go on with what is possible after any of the branches."""
        if not scopes:
            return
        for kind in ("names", "paths"):
            tables = [getattr(scope, kind) for scope in scopes]
            keys = set().union(*tables) if kind == "names" else set(tables[0]).intersection(*tables[1:])
            setattr(self, kind, {key: join(*[table[key] for table in tables if key in table]) for key in keys})

    def forget(self, name: str) -> None:
        """Drop what was known of attributes of a name that changes."""
        self.paths = {
            path: value for path, value in self.paths.items() if not path.startswith(f"{name}.") and path != name
        }


def walk_scope(scope: Scope) -> WalkScope | None:
    """The walked block that an expression is in."""
    found: Scope | None = scope
    while isinstance(found, ExpressionScope):
        found = found.parent
    return found if isinstance(found, WalkScope) else None


def local_statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node of a function's own block; nested functions and classes are given, not entered."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def every_node(root: ast.AST) -> Iterator[ast.AST]:
    """Every node below one, itself included, in no particular order: `ast.walk` takes half as long again."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                stack.append(value)
            elif type(value) is list:
                stack.extend([item for item in value if isinstance(item, ast.AST)])


def parameters_of(function: Function) -> list[ast.arg]:
    """The parameters that can be given by position, in order."""
    arguments = function.node.args
    return [*arguments.posonlyargs, *arguments.args]


def bound_value(function: FunctionObject) -> Value:
    """What the first parameter of a bound method is given."""
    return frozenset({function.bound}) if function.bound is not None else frozenset()


def self_value(cls: Class) -> Value:
    """An instance of the class."""
    return frozenset({Instance(cls)})
