"""Calls: what calling a function, a class or another package's function gives."""

from __future__ import annotations

import ast

from .functions import is_generator_context
from .names import Names
from .program import Program
from .scopes import ExpressionScope, FunctionScope, Scope, local_statements
from .values import (
    ANYTHING,
    NONE,
    UNKNOWN,
    Atom,
    ClassObject,
    External,
    ExternalInstance,
    Function,
    FunctionObject,
    Instance,
    Mapping,
    Partial,
    Sequence,
    Text,
    Value,
    is_known,
    join,
    known,
)

__all__ = ["Calling"]

MODULE_LIST = ".ModuleList"
# Calls of other packages whose result is one of their arguments.
PASS_THROUGH = {"typing.cast": 1, "copy.copy": 0, "copy.deepcopy": 0, "builtins.sorted": 0, "builtins.list": 0,
                "builtins.tuple": 0, "builtins.set": 0, "builtins.reversed": 0, "builtins.iter": 0,
                "itertools.islice": 0, "tqdm.tqdm": 0, "tqdm.auto.tqdm": 0}  # fmt: skip


class Calling(Names):
    """Follows calls.

    Args:
        program: The packages.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._returns: dict[tuple[Function, Atom | None], Value] = {}
        self._active: set[tuple[Function, Atom | None]] = set()
        # What the last attribute to be evaluated hangs on.
        self._bases: dict[ast.Attribute, Value] = {}

    def _eval_Call(self, node: ast.Call, scope: Scope) -> Value:
        callee = self.evaluate(node.func, scope)
        arguments = [self.evaluate(argument, scope) for argument in node.args]
        keywords = {keyword.arg: self.evaluate(keyword.value, scope) for keyword in node.keywords if keyword.arg}
        for keyword in node.keywords:
            if keyword.arg is None and scope.audited:
                self.evaluate(keyword.value, scope)
        result = self._result(node, callee, arguments, keywords, scope)
        return self.saw_call(node, callee, arguments, keywords, result, scope)

    def _result(
        self, node: ast.Call, callee: Value, arguments: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items", "keys", "get", "pop", "copy"):
            # It was evaluated with the callee; once more for each link would double the work with every one.
            of_mapping = self._mapping_method(node.func.attr, self._bases.pop(node.func, ANYTHING))
            if of_mapping:
                return of_mapping
        values = [self._call(atom, node, arguments, keywords, scope) for atom in callee if atom is not NONE]
        return join(*values) if values else ANYTHING

    @staticmethod
    def _mapping_method(name: str, base: Value) -> Value:
        found: list[Value] = []
        for atom in known(base):
            if not isinstance(atom, Mapping):
                return frozenset()
            pair: Value = frozenset({Sequence(join(atom.key, atom.item), (atom.key or ANYTHING, atom.item))})
            results: dict[str, Value] = {
                "values": frozenset({Sequence(atom.item)}),
                "keys": frozenset({Sequence(atom.key or ANYTHING)}),
                "items": frozenset({Sequence(pair)}),
                "copy": frozenset({atom}),
            }
            found.append(results.get(name, atom.item))
        return join(*found) if found else frozenset()

    def _call(
        self, atom: Atom, node: ast.Call, arguments: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if isinstance(atom, ClassObject):
            return frozenset({Instance(atom.cls)})
        if isinstance(atom, FunctionObject):
            return self._filled(self.returned(atom), node, scope)
        if isinstance(atom, Partial):
            return self.returned(atom.function)
        if isinstance(atom, Instance):
            method = self.members.attribute(atom, "__call__") or frozenset()
            target = self.members.attribute(atom, "forward") if not known(method) else method
            values = [self.returned(item) for item in target or () if isinstance(item, FunctionObject)]
            return join(*values) if values else ANYTHING
        if isinstance(atom, External):
            return self._external_call(atom.name, node, arguments, keywords, scope)
        return ANYTHING

    def _filled(self, value: Value, node: ast.Call, scope: Scope) -> Value:
        """A container of unnamed modules, made by a call that is given a factory, holds what the factory makes."""
        if scope.audited or not any(self._is_module_list(atom) for atom in value):
            return value
        made = [self._made_by(argument, scope) for argument in node.args]
        items = [item for item in made if item]
        if not items:
            return value
        holding = Sequence(join(*items))
        return frozenset(_replaced(atom, holding) for atom in value)

    def _is_module_list(self, atom: Atom) -> bool:
        parts = [atom] if not isinstance(atom, Sequence) else [item for part in atom.items or () for item in part]
        return any(isinstance(part, ExternalInstance) and part.name.endswith(MODULE_LIST) for part in parts)

    def _made_by(self, argument: ast.expr, scope: Scope) -> Value:
        if isinstance(argument, ast.Lambda):
            inner = ExpressionScope(scope)
            for parameter in argument.args.args:
                inner.names[parameter.arg] = ANYTHING
            made = self.evaluate(argument.body, inner)
        else:
            made = frozenset(Instance(a.cls) for a in self.evaluate(argument, scope) if isinstance(a, ClassObject))
        return frozenset(atom for atom in made if isinstance(atom, Instance))

    def _external_call(
        self, name: str, node: ast.Call, arguments: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if name == "builtins.dict" and not node.args:
            complete = all(keyword.arg for keyword in node.keywords)
            item = join(*keywords.values()) if keywords else ANYTHING
            return frozenset({Mapping(item, keys=frozenset(keywords) if complete else None)})
        if name == "builtins.super":
            return self.members.parents(scope.owner) if scope.owner is not None else ANYTHING
        if name == "typing.cast" and len(node.args) == 2:
            declared = self.annotations.value(node.args[0], scope, scope.owner)
            return declared if known(declared) else arguments[1]
        index = PASS_THROUGH.get(name)
        if index is not None and len(arguments) > index:
            return arguments[index]
        if not arguments:
            return (
                frozenset({ExternalInstance(name)})
                if name[:1].islower() and name.rpartition(".")[2][:1].isupper()
                else ANYTHING
            )
        return self._of_arguments(name, node, arguments)

    def _of_arguments(self, name: str, node: ast.Call, arguments: list[Value]) -> Value:
        first = arguments[0]
        if name == "builtins.getattr" and len(arguments) > 1:
            names = [atom.text for atom in arguments[1] if isinstance(atom, Text)]
            found = [self.attribute(first, attribute) for attribute in names]
            return join(*found, *arguments[2:]) if found else ANYTHING
        if name == "builtins.next":
            return self.items(first)
        if name == "builtins.enumerate":
            number: Value = frozenset({ExternalInstance("builtins.int")})
            pair: Value = frozenset({Sequence(ANYTHING, (number, self.items(first)))})
            return frozenset({Sequence(pair)})
        if name == "builtins.zip":
            pair = frozenset({Sequence(ANYTHING, tuple(self.items(argument) for argument in arguments))})
            return frozenset({Sequence(pair)})
        if name == "builtins.type" and len(arguments) == 1:
            return frozenset(ClassObject(a.cls) if isinstance(a, Instance) else UNKNOWN for a in first) or ANYTHING
        if name == "functools.partial":
            positional, names_ = len(arguments) - 1, frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
            found_ = [Partial(atom, positional, names_) for atom in first if isinstance(atom, FunctionObject)]
            return frozenset(found_) or ANYTHING
        if name == "types.MethodType" and len(arguments) == 2:
            bound = [
                FunctionObject(function.function, receiver)
                for function in first
                if isinstance(function, FunctionObject)
                for receiver in known(arguments[1])
            ]
            return frozenset(bound) or ANYTHING
        return ANYTHING

    def returned(self, called: FunctionObject) -> Value:
        """What a call of the function gives."""
        key = (called.function, called.bound)
        if key not in self._returns:
            if key in self._active:
                return ANYTHING
            self._active.add(key)
            try:
                self._returns[key] = self._returned(called)
            finally:
                self._active.discard(key)
        return self._returns[key]

    def _returned(self, called: FunctionObject) -> Value:
        function, node = called.function, called.function.node
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, FunctionScope(self, function, called.bound))
        if node.returns is not None:
            owner = called.bound.cls if isinstance(called.bound, (Instance, ClassObject)) else function.owner
            declared = self.annotations.value(node.returns, function.scope, owner)
            if is_generator_context(function):
                return self.items(declared)
            if any(self._tells(atom) for atom in known(declared)):
                return declared
            # "Some module", "anything with this protocol": the body may say which.
            found = self._from_body(called) if known(declared) else frozenset()
            if known(declared):
                certain = is_known(found) and all(isinstance(atom, Instance) for atom in known(found))
                return found if certain else declared
        return self._from_body(called)

    def _tells(self, atom: Atom) -> bool:
        """Whether a declared type is more than a protocol or another package's class."""
        if isinstance(atom, Instance):
            return not self.members.is_protocol(atom.cls)
        return not isinstance(atom, ExternalInstance)

    def _from_body(self, called: FunctionObject) -> Value:
        function, node = called.function, called.function.node
        if isinstance(node, ast.Lambda):
            return ANYTHING
        scope = FunctionScope(self, function, called.bound)
        results: list[Value] = []
        for item in local_statements(node.body):
            if isinstance(item, (ast.Yield, ast.YieldFrom)):
                return ANYTHING
            if isinstance(item, ast.Return):
                results.append(self.evaluate(item.value, scope) if item.value else frozenset({NONE}))
        return join(*results) if results else frozenset({NONE})

    def saw_call(
        self,
        node: ast.Call,
        callee: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        result: Value,
        scope: Scope,
    ) -> Value:
        """Called for every call; gives the value to go on with."""
        return result


def _replaced(atom: Atom, holding: Sequence) -> Atom:
    if isinstance(atom, ExternalInstance) and atom.name.endswith(MODULE_LIST):
        return holding
    if isinstance(atom, Sequence) and atom.items is not None:
        return Sequence(ANYTHING, tuple(frozenset(_replaced(item, holding) for item in part) for part in atom.items))
    return atom
