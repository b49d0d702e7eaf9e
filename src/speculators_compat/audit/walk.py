"""Walks the code under audit statement by statement and reports each use of the API to an auditor.

Unlike the API's own code, which is read out of order, this follows assignments in order and knows what ``hasattr``,
``isinstance``, ``is None`` and type guards say about a branch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .infer import MISSING, Inference
from .scopes import ExpressionScope, Scope
from .values import ANYTHING, NONE, UNKNOWN, Atom, Class, Function, Instance, Mapping, Module, Value, join

__all__ = ["WalkScope", "Walker"]

ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


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


class Walker(Inference):
    """Executes statements on possibilities; subclasses look at what is used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given: dict[tuple[Function, str], Value] = {}
        self._results: dict[Function, Value] = {}
        self._kept: dict[tuple[Class, str], Value] = {}
        self._texts: dict[ast.expr, str] = {}
        self.tolerated: list[set[str]] = []
        self.rehearsing = 0  # above zero: possibilities are still being gathered, nothing may be concluded
        self.current: Function | None = None

    def text(self, node: ast.expr) -> str:
        """An expression as text: the key under which what is known of it is kept."""
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    # What passes between functions

    def given(self, function: Function, name: str) -> Value:
        """See :class:`Inference`."""
        return self._given.get((function, name), ANYTHING)

    def give(self, function: Function, name: str, value: Value) -> None:
        """A caller passes this."""
        key = (function, name)
        self._given[key] = join(self._given[key], value) if key in self._given else value or ANYTHING

    def attribute_given(self, cls: Class, name: str) -> Value | None:
        """See :class:`Inference`."""
        return self._kept.get((cls, name))

    def attribute_of(self, atom: Atom, name: str) -> Value | None:
        """See :class:`Inference`; what the audited code itself hangs onto a foreign object is there too."""
        found = super().attribute_of(atom, name)
        if isinstance(atom, Instance) and found == MISSING:
            return self._kept.get((atom.cls, name), found)
        return found

    def next_pass(self) -> None:
        """Forget the answers that rest on what was not known yet."""
        self._returns.clear()
        self.members._values.clear()

    def returned(self, called: Any) -> Value:
        """See :class:`Inference`."""
        found = self._results.get(called.function)
        return found if found is not None else super().returned(called)

    # Blocks

    def walk_module(self, module: Module) -> None:
        """Walk the module level, then every function and class in it."""
        scope = WalkScope(module, self.module_scope(module), None, "<module>")
        self.current = None
        self.walk_body(module.tree.body, scope)

    def walk_body(self, body: list[ast.stmt], scope: WalkScope) -> bool:
        """Walk statements; whether the end of the block can be reached."""
        later: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        reachable = True
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                later.append(node)
            elif reachable:
                reachable = self._statement(node, scope)
        for node in later:
            self.walk_function(node, scope)
        return reachable

    def walk_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: WalkScope, owner: Class | None = None
    ) -> None:
        """Walk one function with what its parameters are known to be."""
        defining = self._defining_scope(node, scope, owner)
        function = self.function(node, defining, owner)
        for decorator in node.decorator_list:
            self.evaluate(decorator, scope)
        for default in [*node.args.defaults, *[item for item in node.args.kw_defaults if item is not None]]:
            self.evaluate(default, scope)
        nested = scope.function != "<module>" and owner is None
        name = f"{scope.function}.{node.name}" if nested else function.qualname
        inner = WalkScope(scope.module, scope if nested else function.scope, owner or scope.owner, name)
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in every:
            if argument is not None:
                inner.names[argument.arg] = self.parameter(function, argument.arg) or ANYTHING
        before, self.current = self.current, function
        self._returning: list[Value]
        outer, self._returning = getattr(self, "_returning", []), []
        ends = self.walk_body(node.body, inner)
        results = self._returning + ([frozenset({NONE})] if ends else [])
        self._returning, self.current = outer, before
        is_generator = any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in ast.walk(node))
        if node.returns is None and results and not is_generator:
            self._results[function] = join(*results)

    def _defining_scope(self, node: ast.AST, scope: WalkScope, owner: Class | None) -> Scope:
        if owner is not None:
            return self.members.scope(owner)
        # At module level the lazy scope is the one that other modules see the function in.
        return scope if scope.function != "<module>" else self.module_scope(scope.module)

    def _class(self, node: ast.ClassDef, scope: WalkScope) -> None:
        defining = scope if scope.function != "<module>" else self.module_scope(scope.module)
        cls = self.cls(node, defining)
        for base in [*node.bases, *node.decorator_list, *[keyword.value for keyword in node.keywords]]:
            self.evaluate(base, scope)
        inner = WalkScope(scope.module, scope, cls, "<module>" if scope.function == "<module>" else scope.function)
        methods = []
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                methods.append(item)
            else:
                self._statement(item, inner)
        for item in methods:
            self.walk_function(item, inner, cls)

    def _statement(self, node: ast.stmt, scope: WalkScope) -> bool:
        """Walk one statement; whether the next one can be reached."""
        method = getattr(self, f"_walk_{type(node).__name__}", None)
        if method is not None:
            ends = method(node, scope)
            return ends is not False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child, scope)
        return not isinstance(node, ENDS)

    def _walk_ClassDef(self, node: ast.ClassDef, scope: WalkScope) -> None:
        self._class(node, scope)

    def _walk_FunctionDef(self, node: ast.FunctionDef, scope: WalkScope) -> None:
        self.walk_function(node, scope)

    _walk_AsyncFunctionDef = _walk_FunctionDef

    def _walk_Return(self, node: ast.Return, scope: WalkScope) -> bool:
        self._returning.append(self.evaluate(node.value, scope) if node.value else frozenset({NONE}))
        return False

    def _walk_Import(self, node: ast.Import, scope: WalkScope) -> None:
        for alias in node.names:
            value = self.import_name((0, alias.name, ""), scope.module)
            self.saw_import(node, alias.name, "", value, scope)
            if alias.asname:
                scope.names[alias.asname] = value
            else:
                top = alias.name.partition(".")[0]
                scope.names[top] = self.import_name((0, top, ""), scope.module)

    def _walk_ImportFrom(self, node: ast.ImportFrom, scope: WalkScope) -> None:
        from .infer import absolute

        base = absolute(node.level, node.module or "", scope.module)
        for alias in node.names:
            if alias.name == "*":
                self.saw_import(node, base, "", self.import_name((0, base, ""), scope.module), scope)
                continue
            value = self.import_name((node.level, node.module or "", alias.name), scope.module)
            scope.names[alias.asname or alias.name] = self.saw_import(node, base, alias.name, value, scope)

    def _walk_Assign(self, node: ast.Assign, scope: WalkScope) -> None:
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self.assigned(target, value, scope)

    def _walk_AnnAssign(self, node: ast.AnnAssign, scope: WalkScope) -> None:
        declared = self.annotations.value(node.annotation, scope, scope.owner)
        value = self.evaluate(node.value, scope) if node.value is not None else frozenset()
        self.assigned(node.target, self.declared(declared, value), scope)

    def _walk_AugAssign(self, node: ast.AugAssign, scope: WalkScope) -> None:
        self.evaluate(node.value, scope)
        if isinstance(node.target, ast.Name):
            self.assigned(node.target, scope.lookup(node.target.id) or ANYTHING, scope)
        elif isinstance(node.target, ast.Attribute):
            read = ast.copy_location(ast.Attribute(node.target.value, node.target.attr, ast.Load()), node.target)
            self.evaluate(read, scope)

    def assigned(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """An assignment, of a statement or inside an expression."""
        walked = walk_scope(scope)
        if walked is None:
            return
        if isinstance(target, ast.Name):
            walked.names[target.id] = value or ANYTHING
            walked.forget(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                inner = element.value if isinstance(element, ast.Starred) else element
                self.assigned(inner, ANYTHING if inner is not element else self.unpack(value, index), scope)
        elif isinstance(target, ast.Attribute):
            self._attribute_assigned(target, value, walked, scope)
        elif isinstance(target, ast.Subscript):
            self.evaluate(target.slice, scope)
            base = self.evaluate(target.value, scope)
            if isinstance(target.value, ast.Name) and any(isinstance(atom, Mapping) for atom in base):
                walked.names[target.value.id] = frozenset(self._grown(atom, target.slice, value) for atom in base)

    @staticmethod
    def _grown(atom: Atom, key: ast.expr, value: Value) -> Atom:
        if not isinstance(atom, Mapping):
            return atom
        named = isinstance(key, ast.Constant) and isinstance(key.value, str)
        name = str(key.value) if named and isinstance(key, ast.Constant) else ""
        keys = atom.keys | {name} if name and atom.keys is not None else None
        return Mapping(join(atom.item, value), atom.key, keys)

    def _attribute_assigned(self, target: ast.Attribute, value: Value, walked: WalkScope, scope: Scope) -> None:
        base = self.evaluate(target.value, scope)
        self.saw_write(target, base, scope)
        path = self.text(target)
        walked.forget(path)
        walked.paths[path] = value or ANYTHING
        for atom in base:
            if isinstance(atom, Instance):
                key = (atom.cls, target.attr)
                fresh = frozenset(item for item in value if item is not NONE) or value or ANYTHING
                self._kept[key] = join(self._kept[key] - {NONE} or fresh, fresh) if key in self._kept else fresh

    def _walk_Delete(self, node: ast.Delete, scope: WalkScope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
                scope.forget(target.id)

    def _walk_If(self, node: ast.If, scope: WalkScope) -> bool:
        yes, no = self.narrowed(node.test, scope)
        self.saw_branch(node, scope)
        return self._branches([(node.body, yes), (node.orelse, no)], scope)

    def _branches(self, branches: list[tuple[list[ast.stmt], Scope]], scope: WalkScope) -> bool:
        after = []
        for body, inner in branches:
            walked = walk_scope(inner)
            if walked is not None and self.walk_body(body, walked):
                after.append(walked)
        scope.merge(after)
        return bool(after)

    def _walk_While(self, node: ast.While, scope: WalkScope) -> None:
        if self._first_round():
            with self._rehearsal():
                inner, _ = self._condition(node.test, scope)
                self.walk_body(node.body, inner)
                scope.merge([scope.fork(), inner])
        inner, rest = self._condition(node.test, scope)
        self.walk_body(node.body, inner)
        self.walk_body(node.orelse, rest)
        scope.merge([inner, rest])

    def _condition(self, test: ast.expr, scope: WalkScope) -> tuple[WalkScope, WalkScope]:
        yes, no = self.narrowed(test, scope)
        return walk_scope(yes) or scope.fork(), walk_scope(no) or scope.fork()

    @contextmanager
    def _rehearsal(self) -> Iterator[None]:
        """A loop's body is walked once to learn what it leaves behind for its next round."""
        self.rehearsing += 1
        try:
            yield
        finally:
            self.rehearsing -= 1

    def _first_round(self) -> bool:
        """Whether a loop is to be rehearsed: inside a rehearsal once is enough, or every level doubles the work."""
        return not self.rehearsing

    def _walk_For(self, node: ast.For | ast.AsyncFor, scope: WalkScope) -> None:
        items = self.items(self.evaluate(node.iter, scope))
        if self._first_round():
            with self._rehearsal():
                self._round(node, items, scope)
        self._round(node, items, scope)
        self.walk_body(node.orelse, scope)

    def _round(self, node: ast.For | ast.AsyncFor, items: Value, scope: WalkScope) -> None:
        inner = scope.fork()
        self.assigned(node.target, items, inner)
        self.walk_body(node.body, inner)
        scope.merge([scope.fork(), inner])

    _walk_AsyncFor = _walk_For

    def _walk_With(self, node: ast.With | ast.AsyncWith, scope: WalkScope) -> bool:
        suppressed: set[str] = set()
        for item in node.items:
            value = self.evaluate(item.context_expr, scope)
            if isinstance(item.context_expr, ast.Call) and self.text(item.context_expr.func).endswith("suppress"):
                suppressed |= {self.text(argument).rpartition(".")[2] for argument in item.context_expr.args}
            if item.optional_vars is not None:
                self.assigned(item.optional_vars, self._entered(value), scope)
        with self.tolerating(suppressed):
            reachable = self.walk_body(node.body, scope)
        return reachable or bool(suppressed)

    _walk_AsyncWith = _walk_With

    def _entered(self, value: Value) -> Value:
        found: list[Value] = []
        for atom in value:
            method: Value = frozenset()
            if isinstance(atom, Instance):
                for name in ("__enter__", "__aenter__"):
                    method = method or self.members.attribute(atom, name) or frozenset()
            results = [self.returned(item) for item in method if hasattr(item, "function")]
            found += results or [frozenset({atom})]
        return join(*found) if found else ANYTHING

    @contextmanager
    def tolerating(self, names: set[str]) -> Iterator[None]:
        """Errors of these types are expected here."""
        self.tolerated.append(names)
        try:
            yield
        finally:
            self.tolerated.pop()

    def tolerates(self, *names: str) -> bool:
        """Whether one of the errors is expected at this point."""
        return any(set(names) & expected for expected in self.tolerated)

    def _walk_Try(self, node: ast.Try, scope: WalkScope) -> bool:
        before = scope.fork()
        expected = {name for handler in node.handlers for name in _caught(handler) if not _only_raises(handler)}
        with self.tolerating(expected):
            reachable = self.walk_body(node.body, scope)
        if reachable:
            reachable = self.walk_body(node.orelse, scope)
        after = [scope.fork()] if reachable else []
        start = before.fork()
        start.merge([before, scope.fork()])
        for handler in node.handlers:
            inner = start.fork()
            if handler.name:
                inner.names[handler.name] = ANYTHING
            if handler.type is not None:
                self.evaluate(handler.type, inner)
            if self.walk_body(handler.body, inner):
                after.append(inner)
        scope.merge(after)
        return self.walk_body(node.finalbody, scope) and bool(after)

    _walk_TryStar = _walk_Try

    def _walk_Match(self, node: ast.Match, scope: WalkScope) -> bool:
        self.evaluate(node.subject, scope)
        branches: list[tuple[list[ast.stmt], Scope]] = [([], scope.fork())]
        for case in node.cases:
            inner = scope.fork()
            for item in ast.walk(case.pattern):
                name = getattr(item, "name", None)
                if isinstance(name, str):
                    inner.names[name] = ANYTHING
            branches.append((case.body, inner))
        return self._branches(branches, scope)

    # What a condition says

    def narrowed(self, test: ast.expr, scope: Scope) -> tuple[Scope, Scope]:
        """See :class:`Inference`."""
        if not scope.audited:
            return scope, scope
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yes, no = self.narrowed(test.operand, scope)
            return no, yes
        if isinstance(test, ast.BoolOp):
            return self._narrowed_by_all(test, scope)
        self.evaluate(test, scope)
        subject, keep = self._question(test, scope)
        walked = walk_scope(scope)
        if walked is None:
            return scope, scope
        if isinstance(scope, ExpressionScope):
            yes, no = ExpressionScope(scope), ExpressionScope(scope)
        else:
            yes, no = walked.fork(), walked.fork()
        if subject is None or keep is None:
            return yes, no
        value = self.evaluate(subject, scope)
        self._learn(yes, subject, frozenset(atom for atom in value if keep(atom) is not False))
        self._learn(no, subject, frozenset(atom for atom in value if keep(atom) is not True))
        return yes, no

    def _narrowed_by_all(self, test: ast.BoolOp, scope: Scope) -> tuple[Scope, Scope]:
        """``a and b``: both hold in the one branch, nothing is known in the other; ``or`` the other way round."""
        is_and = isinstance(test.op, ast.And)
        here = scope
        for value in test.values:
            yes, no = self.narrowed(value, here)
            here = yes if is_and else no
        walked = walk_scope(scope)
        plain = walked.fork() if walked is not None and not isinstance(scope, ExpressionScope) else scope
        return (here, plain) if is_and else (plain, here)

    def _learn(self, scope: Scope, subject: ast.expr, value: Value) -> None:
        if isinstance(scope, ExpressionScope):
            if isinstance(subject, ast.Name):
                scope.names[subject.id] = value or ANYTHING
        elif isinstance(scope, WalkScope):
            if isinstance(subject, ast.Name):
                scope.names[subject.id] = value or ANYTHING
            else:
                scope.paths[self.text(subject)] = value or ANYTHING

    def _question(self, test: ast.expr, scope: Scope) -> tuple[ast.expr | None, Any]:
        """The expression that a condition asks about, and its answer for one atom: True, False, or None for either."""
        if isinstance(test, ast.NamedExpr):
            return test.target, lambda atom: False if atom is NONE else None
        if isinstance(test, (ast.Name, ast.Attribute)):
            return test, lambda atom: False if atom is NONE else None
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_none(test.comparators[0]):
            if isinstance(test.ops[0], (ast.Is, ast.Eq)):
                return _path(test.left), lambda atom: None if atom is UNKNOWN else atom is NONE
            if isinstance(test.ops[0], (ast.IsNot, ast.NotEq)):
                return _path(test.left), lambda atom: None if atom is UNKNOWN else atom is not NONE
        if isinstance(test, ast.Call) and test.args:
            return _path(test.args[0]), self._call_question(test, scope)
        return None, None

    def _call_question(self, test: ast.Call, scope: Scope) -> Any:
        name = test.func.id if isinstance(test.func, ast.Name) else ""
        if name == "hasattr" and len(test.args) == 2 and isinstance(test.args[1], ast.Constant):
            return lambda atom: self._has(atom, str(test.args[1].value))
        if name == "isinstance" and len(test.args) == 2:
            classes = self.instance_classes(test.args[1], scope)
            return None if classes is None else lambda atom: self._is_one_of(atom, classes)
        guarded = self.guarded_classes(self.evaluate(test.func, scope))
        return None if not guarded else lambda atom: self._is_one_of(atom, guarded)

    def _has(self, atom: Atom, name: str) -> bool | None:
        found = self.attribute_of(atom, name) if atom is not NONE else MISSING
        return None if found is None or atom is UNKNOWN else found != MISSING

    def instance_classes(self, node: ast.expr, scope: Scope) -> list[Class] | None:
        """Classes that ``isinstance`` asks for; None if one of them is not of the sources."""
        from .values import ClassObject

        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        found = [atom for item in nodes for atom in self.evaluate(item, scope)]
        classes = [atom.cls for atom in found if isinstance(atom, ClassObject)]
        return classes if len(classes) == len(found) else None

    def guarded_classes(self, callee: Value) -> list[Class]:
        """Classes of which a type guard (``-> TypeIs[...]``) says that its argument is one."""
        found: list[Class] = []
        for atom in callee:
            returns = getattr(getattr(getattr(atom, "function", None), "node", None), "returns", None)
            for node in ast.walk(returns) if returns is not None else ():
                if isinstance(node, ast.Subscript) and self.text(node.value).rpartition(".")[2] in (
                    "TypeIs",
                    "TypeGuard",
                ):
                    value = self.annotations.value(node.slice, atom.function.scope)  # type: ignore[union-attr]
                    found += [item.cls for item in value if isinstance(item, Instance)]
        return found

    def _is_one_of(self, atom: Atom, classes: list[Class]) -> bool | None:
        if not isinstance(atom, Instance):
            return False if atom is NONE else None
        return self.conforms(atom.cls, classes)

    def conforms(self, cls: Class, classes: list[Class]) -> bool | None:
        """Whether a class is one of the classes: by its bases, or by having all that a protocol asks for."""
        answers: list[bool | None] = []
        for wanted in classes:
            if self.members.is_subclass(cls, wanted):
                return True
            if None in self.members.order(cls):
                answers.append(None)
            elif "typing.Protocol" in self.members.order(wanted):
                names = [name for name in self.members.scope(wanted).bindings() if not name.startswith("__")]
                answers.append(all(self.members.attribute(Instance(cls), name) != MISSING for name in names))
            else:
                answers.append(False)
        return True if True in answers else None if None in answers else False

    # What an auditor overrides

    def saw_import(self, node: ast.stmt, base: str, name: str, value: Value, scope: WalkScope) -> Value:
        """Called for every import; gives the value to go on with."""
        return value

    def saw_write(self, node: ast.Attribute, base: Value, scope: Scope) -> None:
        """Called for every attribute that is assigned."""

    def saw_branch(self, node: ast.If, scope: WalkScope) -> None:
        """Called for every ``if``."""

    def saw_attribute(self, node: ast.Attribute, base: Value, result: Value, scope: Scope) -> Value:
        """What was assigned to, or asked of, this very path is known better."""
        walked = walk_scope(scope)
        found = walked.paths.get(self.text(node)) if walked is not None and walked.paths else None
        return found if found is not None else result


def _path(node: ast.expr) -> ast.expr | None:
    return (
        node
        if isinstance(node, (ast.Name, ast.Attribute))
        else node.target
        if isinstance(node, ast.NamedExpr)
        else None
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return set()
    nodes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(node).rpartition(".")[2] for node in nodes}


def _only_raises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)
