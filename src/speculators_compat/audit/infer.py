"""What an expression can be: names, attributes, calls and annotations followed through the sources.

No symbol of vLLM is built in. Where the sources do not tell, the answer is unknown, and unknown is never reported.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from ..drift import UsageError
from .annotations import Annotations
from .calling import Calling
from .members import Members
from .names import MISSING
from .program import Program
from .scopes import (
    ExpressionScope,
    Scope,
)
from .values import (
    ANYTHING,
    NONE,
    Atom,
    ClassObject,
    External,
    ExternalInstance,
    FunctionObject,
    Instance,
    Mapping,
    ModuleObject,
    Sequence,
    Text,
    Value,
    join,
    known,
)

__all__ = ["Inference"]

# Deeper than any chain of re-exports and factories seen in vLLM; a guard, not a setting.
DEEPEST = 48
# speculators takes some 15,000.
MOST_STEPS = 1_500_000


class Inference(Calling):
    """Follows types through a program.

    Args:
        program: The packages.
        models: Model classes of the API (``module.Class``) that stand for a loaded model.
    """

    def __init__(self, program: Program, models: tuple[str, ...] = ()) -> None:
        super().__init__(program)
        self.members = Members(self)
        self.annotations = Annotations(self, models)
        self._depth = 0
        self._steps = 0

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
