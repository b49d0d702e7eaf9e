"""Classes: their bases, and the attributes that their objects have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import externals
from .scopes import ClassScope, FunctionScope, Scope, every_node
from .values import (
    ANYTHING,
    Atom,
    Binding,
    Class,
    ClassObject,
    External,
    Function,
    FunctionObject,
    Instance,
    Sequence,
    Value,
    join,
)

if TYPE_CHECKING:
    from .infer import Inference

__all__ = ["Members", "SelfAssignment"]

# Every object has these.
OBJECT = frozenset(dir(object)) | {"__dict__", "__module__", "__weakref__", "__annotations__", "__dataclass_fields__"}
CLASS_ONLY = frozenset(dir(type)) | {"__fields__", "__members__"}
PROPERTIES = {"property", "cached_property", "cached_property_no_lock", "abstractproperty"}


@dataclass
class SelfAssignment:
    """``self.name = value`` in a method."""

    method: Function
    value: ast.expr | None
    annotation: ast.expr | None
    index: int | None = None


@dataclass
class _Body:
    """What one class itself provides."""

    names: dict[str, list[Binding]] = field(default_factory=dict)
    assigned: dict[str, list[SelfAssignment]] = field(default_factory=dict)
    open_ended: bool = False  # __getattr__, or attributes set under names that are not literal


class Members:
    """Attributes of classes.

    Args:
        inference: The inference that works out their values.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._bodies: dict[Class, _Body] = {}
        self._scopes: dict[Class, ClassScope] = {}
        self._orders: dict[Class, list[Class | str | None]] = {}
        self._values: dict[tuple[Atom, str], Value | None] = {}
        self._active: set[tuple[Atom, str]] = set()
        # A class that is mixed into others at run time, and those others.
        self.hosts: dict[Class, tuple[Class, ...]] = {}

    def scope(self, cls: Class) -> ClassScope:
        """The scope of a class body."""
        return self._scopes.setdefault(cls, ClassScope(self._inference, cls))

    def order(self, cls: Class) -> list[Class | str | None]:
        """The class and its bases in look-up order: a class, the name of an external one, or None for unknown."""
        if cls not in self._orders:
            self._orders[cls] = [cls]  # a class that is its own base ends here
            found: list[Class | str | None] = []
            for base in cls.node.bases:
                found += self._base(base, cls)
            # Depth first, the last mention counts: what C3 gives for every hierarchy without a conflict.
            kept = list(dict.fromkeys(reversed(found)))
            self._orders[cls] = [cls, *reversed(kept)]
        return self._orders[cls]

    def _base(self, node: ast.expr, cls: Class) -> list[Class | str | None]:
        target = node.value if isinstance(node, ast.Subscript) else node
        found: list[Class | str | None] = []
        scope = cls.scope if isinstance(cls.scope, Scope) else None
        for atom in self._inference.evaluate(target, scope) if scope is not None else ():
            if isinstance(atom, ClassObject):
                found += self.order(atom.cls)
            elif isinstance(atom, External):
                found.append(externals.canonical(atom.name))
            else:
                found.append(None)
        return found or [None]

    def is_subclass(self, cls: Class, base: Class) -> bool:
        """Whether ``base`` is among the class and its bases."""
        return base in self.order(cls)

    def parents(self, cls: Class) -> Value:
        """What ``super()`` gives: objects of the direct bases."""
        found = [item for item in self.order(cls)[1:2] if isinstance(item, Class)]
        return frozenset(Instance(item) for item in found) or ANYTHING

    def attribute(self, atom: Instance | ClassObject, name: str) -> Value | None:
        """The value of an attribute: ``MISSING`` if there is certainly none, None if nothing is known."""
        key = (atom, name)
        if key in self._active:
            return frozenset()
        if key not in self._values:
            self._active.add(key)
            try:
                self._values[key] = self._attribute(atom, name)
            finally:
                self._active.discard(key)
        return self._values[key]

    def _attribute(self, atom: Instance | ClassObject, name: str) -> Value | None:
        found = self._found(atom, atom.cls, name)
        hosts = self.hosts.get(atom.cls, ()) if isinstance(atom, Instance) else ()
        if found is not None and not _is_missing(found):
            return found
        # The host is the object that really runs: a mixin's own class says less.
        values = [self._found(atom, host, name) for host in hosts]
        there = [value for value in values if value is not None and not _is_missing(value)]
        if there:
            return join(*there)
        return None if None in values else found

    def _found(self, atom: Instance | ClassObject, cls: Class, name: str) -> Value | None:
        from .names import MISSING

        # A protocol says the least that an object has.
        certain = not (isinstance(atom, Instance) and self.is_protocol(cls))
        for item in self.order(cls):
            if isinstance(item, Class):
                value = self._own(atom, item, name)
                if value is not None:
                    return value
                certain = certain and not self.body(item).open_ended
            elif item is None:
                certain = False
            else:
                names = externals.members(item)
                if names is None or name in names:
                    certain = False
        always = OBJECT if isinstance(atom, Instance) else OBJECT | CLASS_ONLY
        return MISSING if certain and name not in always else None

    def home(self, cls: Class, name: str) -> Class | None:
        """The class that provides an attribute, among the class and its bases."""
        for item in self.order(cls):
            if isinstance(item, Class) and (name in self.body(item).names or name in self.body(item).assigned):
                return item
        return next((home for host in self.hosts.get(cls, ()) if (home := self.home(host, name)) is not None), None)

    def body(self, cls: Class) -> _Body:
        """What the class itself provides."""
        if cls not in self._bodies:
            self._bodies[cls] = body = _Body(dict(self.scope(cls).bindings()))
            body.open_ended = bool({"__getattr__", "__getattribute__"} & set(body.names))
            for method in self._methods(cls):
                self._read_method(method, body)
        return self._bodies[cls]

    def _methods(self, cls: Class) -> Iterator[Function]:
        for bindings in self.scope(cls).bindings().values():
            for binding in bindings:
                if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield self._inference.function(binding.node, self.scope(cls))

    def _read_method(self, method: Function, body: _Body) -> None:
        positional = [*method.node.args.posonlyargs, *method.node.args.args]
        if not positional:
            return
        receiver = positional[0].arg
        for node in every_node(method.node):
            kind = type(node)
            if kind is ast.Attribute and isinstance(node.ctx, ast.Store) and _is_name(node.value, receiver):  # type: ignore[attr-defined]
                body.assigned.setdefault(node.attr, [])  # type: ignore[attr-defined]
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    _record(target, node.value, None, method, receiver, body)
            elif isinstance(node, ast.AnnAssign):
                _record(node.target, node.value, node.annotation, method, receiver, body)
            elif kind is ast.Call:
                _read_setattr(node, receiver, body)  # type: ignore[arg-type]

    def _own(self, atom: Instance | ClassObject, cls: Class, name: str) -> Value | None:
        """The attribute that this class provides; None if it does not."""
        body = self.body(cls)
        bindings = [item for item in body.names.get(name, []) if not is_bare_init_var(item)]
        values = [self._class_attribute(atom, cls, binding) for binding in bindings]
        if isinstance(atom, Instance) and name in body.assigned:
            given = self._inference.attribute_given(cls, name)
            values += [given] if given is not None else self._assigned_values(atom, body.assigned[name])
        values = [value for value in values if value] or ([ANYTHING] if bindings or values else [])
        if not values:
            return ANYTHING if isinstance(atom, Instance) and name in body.assigned else None
        return self._tagged(atom, join(*values))

    def _assigned_values(self, atom: Instance, places: list[SelfAssignment]) -> list[Value]:
        values = []
        for place in places:
            scope = FunctionScope(self._inference, place.method, Instance(atom.cls))
            declared: Value = frozenset()
            if place.annotation is not None:
                declared = self._inference.annotations.value(place.annotation, scope, atom.cls)
            assigned: Value = frozenset()
            if place.value is not None:
                assigned = self._inference.unpack(self._inference.evaluate(place.value, scope), place.index)
            values.append(self._inference.declared(declared, assigned))
        return values

    def _class_attribute(self, atom: Instance | ClassObject, cls: Class, binding: Binding) -> Value:
        scope = self.scope(cls)
        if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return self._method(atom, self._inference.function(binding.node, scope))
        if self.is_enum(cls) and binding.value is not None:
            return frozenset({Instance(cls)})
        return self._inference.binding(binding, scope)

    def _method(self, atom: Instance | ClassObject, function: Function) -> Value:
        from .functions import decorator_names, is_class_method, is_static

        names = decorator_names(function)
        receiver: Atom = Instance(atom.cls) if isinstance(atom, Instance) else atom
        if isinstance(atom, Instance) and (PROPERTIES & set(names) or any(name.endswith("property") for name in names)):
            return self._inference.returned(FunctionObject(function, receiver))
        if is_static(function):
            return frozenset({FunctionObject(function)})
        if is_class_method(function):
            return frozenset({FunctionObject(function, ClassObject(atom.cls))})
        return frozenset({FunctionObject(function, receiver if isinstance(atom, Instance) else None)})

    def is_enum(self, cls: Class) -> bool:
        """Whether the class is an enumeration."""
        return any(isinstance(item, str) and item.startswith("enum.") for item in self.order(cls))

    def is_protocol(self, cls: Class) -> bool:
        """Whether the class itself is a protocol, not an implementation of one."""
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in cls.node.bases]
        return any(getattr(base, "attr", getattr(base, "id", "")) == "Protocol" for base in bases)

    @staticmethod
    def _tagged(atom: Atom, value: Value) -> Value:
        """What hangs off one architecture's object belongs to that architecture too."""
        tag = atom.tag if isinstance(atom, Instance) else ""
        if not tag:
            return value
        return frozenset(_with_tag(item, tag) for item in value)


def is_bare_init_var(binding: Binding) -> bool:
    """A field that only the constructor sees: ``InitVar`` without a default leaves no attribute."""
    annotation = binding.annotation
    if annotation is None or binding.value is not None:
        return False
    target = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")) == "InitVar"


def _with_tag(atom: Atom, tag: str) -> Atom:
    if isinstance(atom, Instance):
        return Instance(atom.cls, tag)
    if isinstance(atom, FunctionObject) and isinstance(atom.bound, Instance):
        return FunctionObject(atom.function, Instance(atom.bound.cls, tag))
    if isinstance(atom, Sequence):
        items = tuple(frozenset(_with_tag(item, tag) for item in part) for part in atom.items) if atom.items else None
        return Sequence(frozenset(_with_tag(item, tag) for item in atom.item), items)
    return atom


def _is_missing(value: Value) -> bool:
    from .names import MISSING

    return value == MISSING


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _record(
    target: ast.expr, value: ast.expr | None, annotation: ast.expr | None, method: Function, receiver: str, body: _Body
) -> None:
    if isinstance(target, ast.Attribute) and _is_name(target.value, receiver):
        body.assigned.setdefault(target.attr, []).append(SelfAssignment(method, value, annotation))
    elif isinstance(target, (ast.Tuple, ast.List)):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Attribute) and _is_name(element.value, receiver):
                body.assigned.setdefault(element.attr, []).append(SelfAssignment(method, value, annotation, index))


def _read_setattr(node: ast.Call, receiver: str, body: _Body) -> None:
    """``setattr(self, "name", value)``; a name that is not literal makes the class open-ended."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("setattr", "__setattr__") or len(node.args) < 2 or not _is_name(node.args[0], receiver):
        return
    attribute = node.args[1]
    if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
        body.assigned.setdefault(attribute.value, [])
    else:
        body.open_ended = True
