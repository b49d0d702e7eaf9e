"""Walks the code under audit statement by statement and reports each use of the API to an auditor.

Unlike the API's own code, which is read out of order, this follows assignments in order and knows what ``hasattr``,
``isinstance``, ``is None`` and type guards say about a branch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .names import MISSING
from .narrow import Narrowing
from .scopes import Scope, WalkScope, walk_scope
from .values import ANYTHING, NONE, Atom, Class, Function, Instance, Mapping, Module, Value, join

__all__ = ["Walker"]

ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Walker(Narrowing):
    """Executes statements on possibilities; subclasses look at what is used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given: dict[tuple[Function, str], Value] = {}
        self._results: dict[Function, Value] = {}
        self._kept: dict[tuple[Class, str], Value] = {}
        self.tolerated: list[set[str]] = []
        self.rehearsing = 0  # above zero: possibilities are still being gathered, nothing may be concluded
        self.current: Function | None = None

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
        from .functions import absolute

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

    # What an auditor overrides

    def saw_import(self, node: ast.stmt, base: str, name: str, value: Value, scope: WalkScope) -> Value:
        """Called for every import; gives the value to go on with."""
        return value

    def saw_write(self, node: ast.Attribute, base: Value, scope: Scope) -> None:
        """Called for every attribute that is assigned."""

    def saw_branch(self, node: ast.If, scope: WalkScope) -> None:
        """Called for every ``if``."""


def _caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return set()
    nodes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(node).rpartition(".")[2] for node in nodes}


def _only_raises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)
