"""What a callable takes: functions, constructors, dataclass and pydantic fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import externals
from .signature import Extra, Kind, Parameter, Signature
from .values import (
    Atom,
    Binding,
    Class,
    ClassObject,
    External,
    Function,
    FunctionObject,
    Instance,
    Partial,
)

if TYPE_CHECKING:
    from .infer import Inference
    from .scopes import Scope

__all__ = ["Signatures"]

FIELD_CALLS = {"field", "Field", "PydanticField"}
DATACLASS_CALLS = {"dataclasses.dataclass": "error", "pydantic.dataclasses.dataclass": "ignored"}


@dataclass
class _Fields:
    """How a class makes its constructor from fields."""

    extra: Extra
    keyword_only: bool = False
    init: bool = True
    model: bool = False  # a pydantic model, whose settings are an attribute


@dataclass
class _Field:
    name: str
    default: str | None
    annotation: str
    keyword_only: bool = False
    init: bool = True


@dataclass
class Signatures:
    """Signatures of callables.

    Args:
        inference: The inference that looks classes and decorators up.
    """

    inference: Inference
    _known: dict[Atom, Signature | None] = field(default_factory=dict)

    def of(self, atom: Atom) -> Signature | None:
        """The signature of something called; None if the sources do not tell."""
        if atom not in self._known:
            self._known[atom] = None  # a constructor that forwards to itself ends here
            self._known[atom] = self._of(atom)
        return self._known[atom]

    def _of(self, atom: Atom) -> Signature | None:
        if isinstance(atom, FunctionObject):
            return self._function(atom)
        if isinstance(atom, Partial):
            return self._partial(atom)
        if isinstance(atom, ClassObject):
            return self._constructor(atom.cls)
        if isinstance(atom, Instance):
            members = self.inference.members
            for name in ("__call__", "forward"):
                found = [item for item in members.attribute(atom, name) or () if isinstance(item, FunctionObject)]
                if found:
                    return self.of(found[0])
        return None

    def _partial(self, atom: Partial) -> Signature | None:
        whole = self.of(atom.function)
        if whole is None:
            return None
        left = tuple(p for p in whole.parameters[atom.positional :] if p.name not in atom.names)
        return Signature(whole.symbol, left, whole.any_positional, whole.extra, whole.accepts, whole.where)

    # Functions

    def _function(self, atom: FunctionObject) -> Signature | None:
        from .functions import decorator_names, is_class_method, is_static

        function = atom.function
        arguments = function.node.args
        if {"property", "cached_property"} & set(decorator_names(function)):
            return None
        drop = 1 if atom.bound is not None or (function.owner is not None and is_class_method(function)) else 0
        drop = 0 if is_static(function) and not isinstance(function.node, ast.Lambda) and atom.bound is None else drop
        parameters = list(self._positional(function))[drop:]
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            parameters.append(
                Parameter(
                    argument.arg, "keyword-only", self._default(default, function.scope), _text(argument.annotation)
                )
            )
        extra: Extra = "error"
        accepts = self._named_in_decorators(function)
        if arguments.kwarg is not None:
            extra, more = self._forwarded(atom, arguments.kwarg.arg)
            accepts |= more
        returns = "" if isinstance(function.node, ast.Lambda) else _text(function.node.returns)
        return Signature(
            function.symbol, tuple(parameters), arguments.vararg is not None, extra, accepts, _where(function), returns
        )

    def _positional(self, function: Function) -> Iterator[Parameter]:
        arguments = function.node.args
        every = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(every) - len(arguments.defaults)) + list(arguments.defaults)
        for index, (argument, default) in enumerate(zip(every, defaults, strict=True)):
            kind: Kind = "positional-only" if index < len(arguments.posonlyargs) else "positional"
            yield Parameter(argument.arg, kind, self._default(default, function.scope), _text(argument.annotation))

    def _default(self, node: ast.expr | None, scope: Scope) -> str | None:
        """A default's text; the name of a constant is replaced by what it is."""
        if node is None:
            return None
        if isinstance(node, ast.Name):
            constant = _constant(node.id, scope)
            return constant if constant is not None else node.id
        return _text(node)

    @staticmethod
    def _named_in_decorators(function: Function) -> frozenset[str]:
        """A decorator that names keywords (of a deprecated parameter, say) handles them itself."""
        if isinstance(function.node, ast.Lambda):
            return frozenset()
        return frozenset(
            node.value
            for decorator in function.node.decorator_list
            for node in ast.walk(decorator)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )

    def _forwarded(self, atom: FunctionObject, name: str) -> tuple[Extra, frozenset[str]]:
        """Keywords that ``**name`` takes: all, unless it only goes on to callables that are known."""
        function = atom.function
        if isinstance(function.node, ast.Lambda):
            return "accepted", frozenset()
        targets: list[ast.Call] = []
        used_otherwise = False
        texts: set[str] = set()
        passed = set()
        for node in ast.walk(function.node):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id == name:
                        targets.append(node)
                        passed.add(keyword.value)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                texts.add(node.value)
        for node in ast.walk(function.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node not in passed:
                used_otherwise = used_otherwise or not self._is_lookup(node, function.node)
        if used_otherwise or len(targets) != 1:
            return "accepted", frozenset()
        return self._target_accepts(atom, targets[0], texts)

    @staticmethod
    def _is_lookup(name: ast.Name, node: ast.AST) -> bool:
        """``"x" in kwargs``, ``kwargs["x"]``, ``kwargs.pop("x")``: the string is in the function's text."""
        for item in ast.walk(node):
            if isinstance(item, ast.Compare) and name in item.comparators and isinstance(item.left, ast.Constant):
                return True
            if isinstance(item, ast.Subscript) and item.value is name and isinstance(item.slice, ast.Constant):
                return True
            if isinstance(item, ast.Attribute) and item.value is name and item.attr in ("pop", "get", "setdefault"):
                return True
        return False

    def _target_accepts(self, atom: FunctionObject, call: ast.Call, texts: set[str]) -> tuple[Extra, frozenset[str]]:
        from .scopes import FunctionScope

        scope = FunctionScope(self.inference, atom.function, atom.bound)
        callee = self.inference.evaluate(call.func, scope)
        signatures = [self.of(item) for item in callee] or [None]
        if any(signature is None for signature in signatures):
            return "accepted", frozenset()
        accepts = set(texts)
        extra: Extra = "error"
        for signature in signatures:
            if signature is not None:
                accepts |= {parameter.name for parameter in signature.parameters} | signature.accepts
                extra = signature.extra if signature.extra != "error" else extra
        return extra, frozenset(accepts)

    # Constructors

    def _constructor(self, cls: Class) -> Signature | None:
        members = self.inference.members
        for item in members.order(cls):
            if item is None:
                return None
            if isinstance(item, str):
                if item in externals.FIELD_BASED:
                    return self._from_fields(cls, item)
                if externals.has_init(item):
                    return None
                continue
            bindings = members.body(item).names
            # A dataclass keeps an __init__ that its body defines.
            for name in ("__init__", "__new__"):
                if name in bindings:
                    return self._init(item, bindings[name][-1])
            fields = self._fields(item)
            if fields is not None and fields.init:
                return self._field_signature(cls, item, fields)
        if members.is_enum(cls):
            return None
        return Signature(cls.symbol, (), where=_class_where(cls))

    def _init(self, cls: Class, binding: Binding) -> Signature | None:
        if not isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        function = self.inference.function(binding.node, self.inference.members.scope(cls))
        return self._function(FunctionObject(function, Instance(cls)))

    def _from_fields(self, cls: Class, base: str) -> Signature | None:
        extra: Extra = "ignored" if base.startswith("pydantic") else "error"
        fields = _Fields(extra, keyword_only=base.startswith("pydantic"))
        fields.keyword_only |= any(k.arg == "kw_only" and _is_true(k.value) for k in cls.node.keywords)
        if base.startswith("pydantic"):
            fields.extra, fields.model = self._model_extra(cls), True
        return self._field_signature(cls, None, fields)

    def _model_extra(self, cls: Class) -> Extra:
        for item in self.inference.members.order(cls):
            if isinstance(item, Class):
                for binding in self.inference.members.body(item).names.get("model_config", []):
                    found = _extra_in(binding.value)
                    if found:
                        return found
        return "ignored"

    def _fields(self, cls: Class) -> _Fields | None:
        """How the class's decorators make a constructor; None if they do not."""
        for decorator in cls.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            extra = self._decorator_extra(target, cls)
            if extra is None:
                continue
            for keyword in keywords:
                extra = _extra_in(keyword.value) or extra
            flags = {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
            return _Fields(extra, _is_true(flags.get("kw_only")), not _is_false(flags.get("init")))
        return None

    def _decorator_extra(self, target: ast.expr, cls: Class) -> Extra | None:
        for atom in self.inference.evaluate(target, cls.scope):
            if isinstance(atom, External) and atom.name in DATACLASS_CALLS:
                return "error" if DATACLASS_CALLS[atom.name] == "error" else "ignored"
            if isinstance(atom, FunctionObject):
                found = self._makes_dataclass(atom.function)
                if found is not None:
                    return found
        return None

    def _makes_dataclass(self, function: Function) -> Extra | None:
        """Whether a decorator of the sources applies ``dataclass``, and what it does with extra keywords."""
        kind: Extra | None = None
        for node in ast.walk(function.node):
            if isinstance(node, ast.Call):
                for atom in self.inference.evaluate(node.func, function.scope):
                    if isinstance(atom, External) and atom.name in DATACLASS_CALLS:
                        kind = "error" if DATACLASS_CALLS[atom.name] == "error" else "ignored"
        if kind is None:
            return None
        return _extra_in(function.node) or kind

    def _field_signature(self, cls: Class, decorated: Class | None, how: _Fields) -> Signature:
        """Fields of the class and its bases, base first; a name that comes again keeps its place."""
        members = self.inference.members
        start = members.order(cls)
        if decorated is not None:
            start = start[start.index(decorated) :]
        found: dict[str, _Field] = {}
        for item in reversed(start):
            if isinstance(item, Class) and (decorated is None or item is decorated or self._fields(item) is not None):
                for one in self._own_fields(item, how):
                    found[one.name] = one
        parameters = [
            Parameter(one.name, "keyword-only" if one.keyword_only else "positional", one.default, one.annotation)
            for one in found.values()
            if one.init
        ]
        parameters.sort(key=lambda parameter: parameter.kind == "keyword-only")
        return Signature(cls.symbol, tuple(parameters), extra=how.extra, where=_class_where(cls))

    def _own_fields(self, cls: Class, how: _Fields) -> Iterator[_Field]:
        keyword_only = how.keyword_only
        for node in _statements(cls.node.body):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            annotation = _text(node.annotation)
            if "ClassVar" in annotation or (how.model and node.target.id == "model_config"):
                continue
            if annotation.endswith("KW_ONLY"):
                keyword_only = True
                continue
            yield self._field(node.target.id, node, annotation, keyword_only, cls)

    def _field(self, name: str, node: ast.AnnAssign, annotation: str, keyword_only: bool, cls: Class) -> _Field:
        value = node.value
        for part in ast.walk(node.annotation):
            # Annotated[int, Field(default=1)]
            if value is None and isinstance(part, ast.Call) and _called(part) in FIELD_CALLS:
                value = part
        if not (isinstance(value, ast.Call) and (_called(value) in FIELD_CALLS or self._is_field_call(value, cls))):
            return _Field(name, self._default(value, self.inference.members.scope(cls)), annotation, keyword_only)
        given = {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg}
        default: str | None = None
        if "default" in given or value.args:
            written = given.get("default", value.args[0] if value.args else None)
            is_ellipsis = isinstance(written, ast.Constant) and written.value is ...
            default = None if is_ellipsis else self._default(written, cls.scope)
        elif "default_factory" in given:
            factory = given["default_factory"]
            default = _text(factory.body) if isinstance(factory, ast.Lambda) else f"{_text(factory)}()"
        keyword_only = keyword_only or _is_true(given.get("kw_only"))
        return _Field(name, default, annotation, keyword_only, not _is_false(given.get("init")))

    def _is_field_call(self, value: ast.Call, cls: Class) -> bool:
        names = {atom.name for atom in self.inference.evaluate(value.func, cls.scope) if isinstance(atom, External)}
        return bool(names & {"dataclasses.field", "pydantic.Field", "pydantic.fields.Field", "msgspec.field"})


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)
            yield from _statements(node.orelse)


def _constant(name: str, scope: Scope) -> str | None:
    """Text of a module-level constant that is a literal."""
    found = scope.module.bindings.get(name, []) if scope is not None else []
    value = found[-1].value if found else None
    return _text(value) if isinstance(value, ast.Constant) else None


def _extra_in(node: ast.AST | None) -> Extra | None:
    """``extra="forbid"`` anywhere in an expression."""
    if node is None:
        return None
    names: dict[str, Extra] = {"forbid": "forbidden", "ignore": "ignored", "allow": "accepted"}
    for part in ast.walk(node):
        if isinstance(part, ast.keyword) and part.arg == "extra" and isinstance(part.value, ast.Constant):
            return names.get(str(part.value.value))
        if isinstance(part, ast.Dict):
            for key, value in zip(part.keys, part.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "extra" and isinstance(value, ast.Constant):
                    return names.get(str(value.value))
    return None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _text(node: ast.AST | None) -> str:
    return ast.unparse(node) if node is not None else ""


def _where(function: Function) -> str:
    return f"{function.module.path}:{function.node.lineno}"


def _class_where(cls: Class) -> str:
    return f"{cls.module.path}:{cls.node.lineno}"
