"""What an expression can be: names, attributes, calls and annotations followed through the sources.

No symbol of vLLM is built in. Where the sources do not tell, the answer is unknown, and unknown is never reported.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from ..drift import UsageError
from .annotations import Annotations
from .members import Members
from .program import Program
from .scopes import (
    ClassScope,
    ExpressionScope,
    FunctionScope,
    ModuleScope,
    Scope,
    every_node,
    local_statements,
    parameters_of,
)
from .values import (
    ANYTHING,
    NONE,
    UNKNOWN,
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
    Partial,
    Sequence,
    Text,
    Value,
    is_known,
    join,
    known,
)

__all__ = ["MISSING", "Inference"]

MISSING: Value = frozenset({External("<missing>")})
# Deeper than any chain of re-exports and factories seen in vLLM; a guard, not a setting.
DEEPEST = 48
# speculators takes some 15,000.
MOST_STEPS = 1_500_000
MODULE_LIST = ".ModuleList"
# Calls of other packages whose result is one of their arguments.
PASS_THROUGH = {"typing.cast": 1, "copy.copy": 0, "copy.deepcopy": 0, "builtins.sorted": 0, "builtins.list": 0,
                "builtins.tuple": 0, "builtins.set": 0, "builtins.reversed": 0, "builtins.iter": 0,
                "itertools.islice": 0, "tqdm.tqdm": 0, "tqdm.auto.tqdm": 0}  # fmt: skip


class Inference:
    """Follows types through a program.

    Args:
        program: The packages.
        models: Model classes of the API (``module.Class``) that stand for a loaded model.
    """

    def __init__(self, program: Program, models: tuple[str, ...] = ()) -> None:
        self.program = program
        self.members = Members(self)
        self.annotations = Annotations(self, models)
        self._classes: dict[ast.AST, Class] = {}
        self._functions: dict[ast.AST, Function] = {}
        self._scopes: dict[int, ModuleScope] = {}
        self._resolving: list[tuple[str, str]] = []
        self._names: dict[tuple[Module, str, bool], Value | None] = {}
        self._returns: dict[tuple[Function, Atom | None], Value] = {}
        self._active: set[tuple[Function, Atom | None]] = set()
        self._depth = 0
        self._steps = 0
        self._bases: dict[ast.Attribute, Value] = {}

    # Names

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

    # Expressions

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression can be.

        Raises:
            UsageError: The sources ask for more work than any that were seen.
        """
        self.spend()
        method: Callable[[ast.expr, Scope], Value] | None = getattr(self, f"_eval_{type(node).__name__}", None)
        if method is None:
            return self._children(node, scope)
        if self._depth >= DEEPEST:
            return ANYTHING
        self._depth += 1
        try:
            return method(node, scope)
        finally:
            self._depth -= 1

    def spend(self) -> None:
        """Count one step; code made to branch without end is refused instead of followed."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise UsageError(
                "The sources must be simple enough to follow.",
                f"more than {MOST_STEPS:,} steps, a hundred times those of speculators",
                "Audit a smaller part.",
            )

    def _children(self, node: ast.AST, scope: Scope) -> Value:
        """Expressions inside one whose own value does not matter; walked for what they use."""
        if scope.audited:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.evaluate(child, scope)
                elif not isinstance(child, ast.expr_context):
                    self._children(child, scope)
        return ANYTHING

    def _eval_Name(self, node: ast.Name, scope: Scope) -> Value:
        found = scope.lookup(node.id)
        if found is not None:
            return ANYTHING if found == MISSING else found
        return frozenset({External(f"builtins.{node.id}")}) if hasattr(builtins, node.id) else ANYTHING

    def _eval_Constant(self, node: ast.Constant, scope: Scope) -> Value:
        if node.value is None:
            return frozenset({NONE})
        if isinstance(node.value, str):
            return frozenset({Text(node.value)})
        return frozenset({ExternalInstance(f"builtins.{type(node.value).__name__}")})

    def _eval_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        self._children(node, scope)
        return frozenset({ExternalInstance("builtins.str")})

    def _eval_Attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        base = self._bases[node] = self.evaluate(node.value, scope)
        return self.saw_attribute(node, base, self.attribute(base, node.attr), scope)

    def attribute(self, base: Value, name: str) -> Value:
        """The value of an attribute, over all possibilities that have it."""
        values = [self.attribute_of(atom, name) for atom in base if atom is not NONE]
        return join(*[value for value in values if value is not None and value != MISSING] or [ANYTHING])

    def attribute_of(self, atom: Atom, name: str) -> Value | None:
        """The value of an attribute; ``MISSING`` if there is certainly none, None if nothing is known."""
        if isinstance(atom, (Instance, ClassObject)):
            return self.members.attribute(atom, name)
        if isinstance(atom, ModuleObject):
            return self._module_attribute(atom.name, name)
        if isinstance(atom, External):
            return frozenset({External(f"{atom.name}.{name}")})
        if isinstance(atom, Mapping) and name in ("values", "items", "keys", "get", "pop"):
            return frozenset({External(f"dict.{name}")})
        return None

    def _module_attribute(self, base: str, name: str) -> Value | None:
        if f"{base}.{name}" == f"{base}.__dict__" or name.startswith("__"):
            return None
        return self.from_import(base, name)

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

    def _eval_Subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.evaluate(node.value, scope)
        index = self.evaluate(node.slice, scope) if scope.audited else ANYTHING
        del index
        if isinstance(node.slice, ast.Slice):
            return base
        values: list[Value] = []
        for atom in base:
            if isinstance(atom, Sequence) and atom.items is not None and isinstance(node.slice, ast.Constant):
                position = node.slice.value
                fits = isinstance(position, int) and -len(atom.items) <= position < len(atom.items)
                values.append(atom.items[position] if fits and isinstance(position, int) else ANYTHING)
            elif isinstance(atom, (Sequence, Mapping)):
                values.append(atom.item)
            elif isinstance(atom, ClassObject):
                values.append(frozenset({atom}))
            elif isinstance(atom, Instance):
                method = self.members.attribute(atom, "__getitem__") or frozenset()
                values += [self.returned(item) for item in method if isinstance(item, FunctionObject)] or [ANYTHING]
            elif atom is not NONE:
                values.append(ANYTHING)
        return join(*values) if values else ANYTHING

    def items(self, value: Value) -> Value:
        """What iterating over a value gives."""
        found: list[Value] = []
        for atom in known(value):
            if isinstance(atom, Sequence):
                found.append(atom.item)
            elif isinstance(atom, Mapping):
                found.append(atom.key or ANYTHING)
            elif isinstance(atom, Instance):
                method = self.members.attribute(atom, "__iter__") or frozenset()
                found += [self.items(self.returned(item)) for item in method if isinstance(item, FunctionObject)]
            else:
                found.append(ANYTHING)
        return join(*found) if found else ANYTHING

    def unpack(self, value: Value, index: int | None) -> Value:
        """One element of an unpacked value; the value itself without an index."""
        if index is None:
            return value
        found: list[Value] = []
        for atom in known(value):
            whole = isinstance(atom, Sequence) and atom.items is not None and index < len(atom.items)
            found.append(
                atom.items[index]
                if whole and isinstance(atom, Sequence) and atom.items
                else self.items(frozenset({atom}))
            )
        return join(*found) if found else ANYTHING

    def _eval_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Value:
        values = [self.evaluate(value, scope) for value in node.values]
        if isinstance(node.op, ast.Or):
            # The last alternative may be None; an earlier None falls through to it.
            return join(*[frozenset(v - {NONE}) or frozenset({NONE}) for v in values[:-1]], values[-1])
        return values[-1]

    def _eval_IfExp(self, node: ast.IfExp, scope: Scope) -> Value:
        yes, no = self.narrowed(node.test, scope)
        return join(self.evaluate(node.body, yes), self.evaluate(node.orelse, no))

    def narrowed(self, test: ast.expr, scope: Scope) -> tuple[Scope, Scope]:
        """Scopes in which the test holds, and in which it does not."""
        if scope.audited:
            self.evaluate(test, scope)
        return scope, scope

    def _eval_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        self.assigned(node.target, value, scope)
        return value

    def assigned(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """An assignment inside an expression."""

    def _eval_Await(self, node: ast.Await, scope: Scope) -> Value:
        return self.evaluate(node.value, scope)

    def _eval_Starred(self, node: ast.Starred, scope: Scope) -> Value:
        return self.items(self.evaluate(node.value, scope))

    def _eval_List(self, node: ast.List | ast.Set, scope: Scope) -> Value:
        values = [self.evaluate(element, scope) for element in node.elts]
        return frozenset({Sequence(join(*values) if values else ANYTHING)})

    _eval_Set = _eval_List

    def _eval_Tuple(self, node: ast.Tuple, scope: Scope) -> Value:
        values = tuple(self.evaluate(element, scope) for element in node.elts)
        starred = any(isinstance(element, ast.Starred) for element in node.elts)
        return frozenset({Sequence(join(*values) if values else ANYTHING, None if starred else values)})

    def _eval_Dict(self, node: ast.Dict, scope: Scope) -> Value:
        keys = [self.evaluate(key, scope) for key in node.keys if key is not None]
        values = [self.evaluate(value, scope) for value in node.values]
        names = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        known_keys = frozenset(names) if len(names) == len(node.keys) else None
        return frozenset(
            {Mapping(join(*values) if values else ANYTHING, join(*keys) if keys else frozenset(), known_keys)}
        )

    def _comprehension(self, generators: list[ast.comprehension], scope: Scope) -> Scope:
        inner = ExpressionScope(scope)
        result: Scope = inner
        for generator in generators:
            self._bind(generator.target, self.items(self.evaluate(generator.iter, result)), inner)
            for test in generator.ifs:
                result, _ = self.narrowed(test, result)
        return result

    def _bind(self, target: ast.expr, value: Value, scope: ExpressionScope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                self._bind(element, self.unpack(value, index), scope)

    def _eval_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Value:
        inner = self._comprehension(node.generators, scope)
        return frozenset({Sequence(self.evaluate(node.elt, inner))})

    _eval_SetComp = _eval_ListComp
    _eval_GeneratorExp = _eval_ListComp

    def _eval_DictComp(self, node: ast.DictComp, scope: Scope) -> Value:
        inner = self._comprehension(node.generators, scope)
        key = self.evaluate(node.key, inner)
        return frozenset({Mapping(self.evaluate(node.value, inner), key)})

    def _eval_BinOp(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        # [x] * n and list + list keep their items.
        kept = [atom for atom in left | right if isinstance(atom, Sequence)]
        return frozenset({Sequence(join(*[atom.item for atom in kept]))}) if kept else ANYTHING

    def _eval_Lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        inner = ExpressionScope(scope)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            inner.names[argument.arg] = ANYTHING
        if scope.audited:
            self.evaluate(node.body, inner)
        return ANYTHING

    # What an auditor overrides

    def saw_attribute(self, node: ast.Attribute, base: Value, result: Value, scope: Scope) -> Value:
        """Called for every attribute that is read; gives the value to go on with."""
        return result

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

    def elsewhere(self, origin: tuple[int, str, str], importer: Module) -> Value:
        """What an import that fails was meant to bind."""
        return MISSING

    def attribute_given(self, cls: Class, name: str) -> Value | None:
        """What an audited class keeps under a name, as far as its methods were walked."""
        return None


def _replaced(atom: Atom, holding: Sequence) -> Atom:
    if isinstance(atom, ExternalInstance) and atom.name.endswith(MODULE_LIST):
        return holding
    if isinstance(atom, Sequence) and atom.items is not None:
        return Sequence(ANYTHING, tuple(frozenset(_replaced(item, holding) for item in part) for part in atom.items))
    return atom


def absolute(level: int, name: str, importer: Module) -> str:
    """The absolute name of an import."""
    if not level:
        return name
    parts = importer.name.split(".")
    base = parts[: len(parts) - level + (1 if importer.is_package else 0)]
    return ".".join([*base, name] if name else base)


def decorator_names(function: Function) -> list[str]:
    """Last parts of a function's decorators."""
    if isinstance(function.node, ast.Lambda):
        return []
    names = []
    for decorator in function.node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.append(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", ""))
    return names


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter."""
    arguments = function.node.args
    positional = parameters_of(function)
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False)
    ]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return next((default for argument, default in pairs if argument.arg == name), None)


def is_static(function: Function) -> bool:
    """Whether it is a static method."""
    return "staticmethod" in decorator_names(function)


def is_class_method(function: Function) -> bool:
    """Whether it is a class method."""
    name = getattr(function.node, "name", "")
    return "classmethod" in decorator_names(function) or name in ("__new__", "__init_subclass__", "__class_getitem__")


def is_generator_context(function: Function) -> bool:
    """Whether it is a context manager written as a generator."""
    return bool({"contextmanager", "asynccontextmanager"} & set(decorator_names(function)))
