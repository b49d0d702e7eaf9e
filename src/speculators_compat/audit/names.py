"""Names: what a module, an import, a definition and a parameter bind."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..drift import UsageError
from .functions import absolute, default_of, is_class_method, is_static
from .program import Program
from .scopes import ClassScope, ModuleScope, Scope, every_node, parameters_of
from .values import (
    ANYTHING,
    Atom,
    Binding,
    Class,
    ClassObject,
    External,
    ExternalInstance,
    Function,
    FunctionObject,
    Instance,
    Mapping,
    Module,
    ModuleObject,
    Sequence,
    Value,
    join,
    known,
)

if TYPE_CHECKING:
    from .annotations import Annotations
    from .members import Members

__all__ = ["MISSING", "Names"]

MISSING: Value = frozenset({External("<missing>")})


class Names:
    """Follows names through the modules of a program.

    Args:
        program: The packages.
    """

    members: Members
    annotations: Annotations

    def __init__(self, program: Program) -> None:
        self.program = program
        self._classes: dict[ast.AST, Class] = {}
        self._functions: dict[ast.AST, Function] = {}
        self._scopes: dict[int, ModuleScope] = {}
        self._resolving: list[tuple[str, str]] = []
        self._names: dict[tuple[Module, str, bool], Value | None] = {}

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression can be."""
        raise NotImplementedError

    def items(self, value: Value) -> Value:
        """What iterating over a value gives."""
        raise NotImplementedError

    def attribute(self, base: Value, name: str) -> Value:
        """The value of an attribute, over all possibilities that have it."""
        raise NotImplementedError

    def unpack(self, value: Value, index: int | None) -> Value:
        """One element of an unpacked value; the value itself without an index."""
        raise NotImplementedError

    def attribute_given(self, cls: Class, name: str) -> Value | None:
        """What an audited class keeps under a name, as far as its methods were walked."""
        return None

    def module_scope(self, module: Module) -> ModuleScope:
        """The scope of a module."""
        return self._scopes.setdefault(id(module), ModuleScope(self, module))

    def import_name(self, origin: tuple[int, str, str], importer: Module) -> Value:
        """What an import binds; ``MISSING`` if a package under audit does not have it."""
        level, name, attribute = origin
        base = absolute(level, name, importer)
        if not self.program.owns(base):
            return frozenset({External(f"{base}.{attribute}" if attribute else base)})
        if not attribute:
            return frozenset({ModuleObject(base)}) if self.program.exists(base) else MISSING
        return self.from_import(base, attribute)

    def from_import(self, base: str, attribute: str) -> Value:
        """The value of ``from base import attribute``; ``MISSING`` if it would fail."""
        module = self.program.module(base)
        found = self.member_of_module(module, attribute) if module is not None else None
        if found is not None:
            return found
        submodule = f"{base}.{attribute}"
        return frozenset({ModuleObject(submodule)}) if self.program.exists(submodule) else MISSING

    def member_of_module(self, module: Module, name: str, for_types: bool = False) -> Value | None:
        """A module-level name; None if the module does not have it.

        Args:
            module: The module.
            name: The name.
            for_types: Whether names that only a type checker sees count.

        Raises:
            UsageError: The name is re-exported in a circle.
        """
        key = (module, name, for_types)
        if key not in self._names:
            value = self._member_of_module(module, name, for_types)
            if self._resolving:
                return value  # part of an answer that is still being worked out
            self._names[key] = value
        return self._names[key]

    def _member_of_module(self, module: Module, name: str, for_types: bool) -> Value | None:
        found = module.bindings.get(name, [])
        lazy = "__getattr__" in module.bindings
        usable = [item for item in found if for_types or lazy or not item.type_only]
        key = (module.name, name)
        if usable:
            if key in self._resolving:
                return None
            self._resolving.append(key)
            try:
                value = self._bound(usable, module, name)
            finally:
                self._resolving.pop()
            if value is not None:
                return value
        for level, star in module.stars:
            base = self.program.module(absolute(level, star, module))
            value = (
                self.member_of_module(base, name, for_types)
                if base and (base.name, name) not in self._resolving
                else None
            )
            if value is not None:
                return value
        return self._lazy(module, name) if lazy else None

    def _bound(self, found: list[Binding], module: Module, name: str) -> Value | None:
        scope = self.module_scope(module)
        values = [value for value in (self.binding(item, scope) for item in found) if value != MISSING]
        if values:
            return join(*values)
        if self.program.exists(f"{module.name}.{name}"):
            return frozenset({ModuleObject(f"{module.name}.{name}")})
        self._refuse_circle(found, module, name)
        return None

    def _refuse_circle(self, found: list[Binding], module: Module, name: str) -> None:
        """A name whose imports only lead back to it exists nowhere."""
        seen = {(module.name, name)}
        origin = found[-1].imported
        here: Module | None = module
        while origin is not None and here is not None:
            base = absolute(origin[0], origin[1], here)
            if (base, origin[2]) in seen:
                raise UsageError(
                    "A re-exported name must be defined somewhere.",
                    f"{module.name}.{name}, whose imports lead in a circle through {base}",
                    "Check the source.",
                )
            seen.add((base, origin[2]))
            here = self.program.module(base)
            bindings = here.bindings.get(origin[2], []) if here else []
            origin = bindings[-1].imported if bindings else None

    def _lazy(self, module: Module, name: str) -> Value | None:
        """A name that ``__getattr__`` of the module may provide: known if a dict of strings there says where it is."""
        nodes = list(every_node(module.tree))
        for node in nodes:
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        return self._lazy_target(module, value) or ANYTHING
        mentioned = any(isinstance(node, ast.Constant) and node.value == name for node in nodes)
        return ANYTHING if mentioned else None

    def _lazy_target(self, module: Module, value: ast.expr) -> Value | None:
        text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        path, _, attribute = text.partition(":")
        if not attribute:
            return None
        level = len(path) - len(path.lstrip("."))
        found = self.from_import(absolute(level, path.lstrip("."), module), attribute)
        return None if found == MISSING else found

    def binding(self, item: Binding, scope: Scope) -> Value:
        """The value of one binding in its scope."""
        node = item.node
        if item.imported is not None:
            found = self.import_name(item.imported, scope.module)
            return self.elsewhere(item.imported, scope.module) if found == MISSING else found
        if isinstance(node, ast.ClassDef):
            return frozenset({ClassObject(self.cls(node, scope))})
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return frozenset({FunctionObject(self.function(node, scope))})
        annotated = self.annotations.value(item.annotation, scope) if item.annotation is not None else frozenset()
        if item.value is None:
            return annotated or ANYTHING
        return self.declared(annotated, self.unpack(self.evaluate(item.value, scope), item.index))

    @staticmethod
    def declared(annotated: Value, assigned: Value) -> Value:
        """A declared value and what is assigned to it: the objects assigned are the better witness."""
        if not known(annotated):
            return assigned or ANYTHING
        better = frozenset(atom for atom in assigned if isinstance(atom, Instance))
        return annotated | better

    def cls(self, node: ast.ClassDef, scope: Scope) -> Class:
        """The class of a definition."""
        if node not in self._classes:
            prefix = f"{scope.owner.qualname}." if isinstance(scope, ClassScope) and scope.owner else ""
            visible = scope.parent if isinstance(scope, ClassScope) else scope
            self._classes[node] = Class(scope.module, node, prefix + node.name, visible)
        return self._classes[node]

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, owner: Class | None = None
    ) -> Function:
        """The function of a definition."""
        if node not in self._functions:
            owner = owner or (scope.owner if isinstance(scope, ClassScope) else None)
            visible = scope.parent if isinstance(scope, ClassScope) else scope
            prefix = f"{owner.qualname}." if owner else ""
            self._functions[node] = Function(scope.module, node, prefix + node.name, visible, owner)
        return self._functions[node]

    def parameter(self, function: Function, name: str, bound: Atom | None = None) -> Value | None:
        """What a parameter can be inside the function; None if it has no such parameter."""
        arguments = function.node.args
        positional = parameters_of(function)
        every = [*positional, *arguments.kwonlyargs]
        argument = next((item for item in every if item.arg == name), None)
        if argument is None:
            if arguments.vararg is not None and arguments.vararg.arg == name:
                return frozenset({Sequence(ANYTHING)})
            if arguments.kwarg is not None and arguments.kwarg.arg == name:
                return frozenset({Mapping(ANYTHING)})
            return None
        if positional and argument is positional[0] and function.owner is not None and not is_static(function):
            if bound is not None:
                return frozenset({bound})
            atom = ClassObject(function.owner) if is_class_method(function) else Instance(function.owner)
            return frozenset({atom})
        declared: Value = frozenset()
        if argument.annotation is not None:
            declared = self.annotations.value(argument.annotation, function.scope, function.owner)
            if any(not isinstance(atom, ExternalInstance) for atom in known(declared)):
                return declared
        # ``layer_type: type[nn.Module] = LlamaDecoderLayer``: the default says more than the annotation.
        default = default_of(function, name)
        value = self.evaluate(default, function.scope) if default is not None else frozenset()
        if any(isinstance(atom, ClassObject) for atom in value):
            return value
        return declared if known(declared) else self.given(function, name)

    def given(self, function: Function, name: str) -> Value:
        """What callers give to an unannotated parameter; a reader of one package alone does not know."""
        return ANYTHING

    def elsewhere(self, origin: tuple[int, str, str], importer: Module) -> Value:
        """What an import that fails was meant to bind."""
        return MISSING
