"""What a condition says about a branch: ``hasattr``, ``isinstance``, ``is None``, type guards."""

from __future__ import annotations

import ast
from typing import Any

from .infer import Inference
from .names import MISSING
from .scopes import ExpressionScope, Scope, WalkScope, walk_scope
from .values import ANYTHING, NONE, UNKNOWN, Atom, Class, Instance, Value

__all__ = ["Narrowing"]


class Narrowing(Inference):
    """Keeps in the scope of a branch what its condition says."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._texts: dict[ast.expr, str] = {}

    def text(self, node: ast.expr) -> str:
        """An expression as text: the key under which what is known of it is kept."""
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

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
