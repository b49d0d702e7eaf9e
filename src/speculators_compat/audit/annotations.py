"""Type annotations as values."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from . import externals
from .program import imported_packages
from .values import (
    ANYTHING,
    NONE,
    Class,
    ClassObject,
    External,
    ExternalInstance,
    Instance,
    Mapping,
    Module,
    Sequence,
    Text,
    Value,
    join,
    known,
)

if TYPE_CHECKING:
    from .infer import Inference
    from .scopes import Scope

__all__ = ["Annotations"]

SEQUENCES = {
    "list", "List", "tuple", "Tuple", "set", "Set", "frozenset", "FrozenSet", "deque", "Deque", "Sequence",
    "MutableSequence", "Iterable", "Iterator", "Collection", "Generator", "AsyncGenerator", "AsyncIterator",
    "AsyncIterable", "AbstractSet", "KeysView", "ValuesView",
}  # fmt: skip
MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "DefaultDict", "OrderedDict"}
# X[T] that is a T to whoever reads it.
TRANSPARENT = {
    "Annotated", "ClassVar", "Final", "InitVar", "Required", "NotRequired", "ReadOnly", "SkipValidation",
    "Awaitable", "Type", "type", "cached_property", "Optional",
}  # fmt: skip
LAST_ARGUMENT = {"Coroutine"}
# Modules of an API in which "some module" is a whole model; deeper down it is any layer.
NOT_WHOLE_MODELS = (".model_executor.models.", ".model_executor.layers.", ".compilation.", ".lora.")


class Annotations:
    """Reads annotations.

    Args:
        inference: The inference that looks names up.
        models: Classes that stand for a loaded model wherever the API, or code that imports it, says
            ``torch.nn.Module``.
    """

    def __init__(self, inference: Inference, models: tuple[str, ...] = ()) -> None:
        self._inference, self._models = inference, models
        self._loaded: Value | None = None
        self._meant: dict[str, bool] = {}
        self._depth = 0

    def value(self, node: ast.expr, scope: Scope, owner: Class | None = None) -> Value:
        """An object of the annotated type.

        Args:
            node: The annotation.
            scope: Where its names are looked up.
            owner: What ``Self`` is.
        """
        if self._depth > 20:
            return ANYTHING
        self._depth += 1
        try:
            return self._value(node, scope, owner)
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, scope: Scope, owner: Class | None) -> Value:
        if isinstance(node, ast.Constant):
            return self._constant(node, scope, owner)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return join(self.value(node.left, scope, owner), self.value(node.right, scope, owner))
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope, owner)
        if isinstance(node, ast.Name) and node.id == "Self":
            return frozenset({Instance(owner)}) if owner is not None else ANYTHING
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, scope, owner)
        return ANYTHING

    def _constant(self, node: ast.Constant, scope: Scope, owner: Class | None) -> Value:
        if node.value is None:
            return frozenset({NONE})
        if not isinstance(node.value, str):
            return ANYTHING
        try:
            return self.value(ast.parse(node.value.strip(), mode="eval").body, scope, owner)
        except (SyntaxError, ValueError, RecursionError):
            return ANYTHING

    def _named(self, node: ast.expr, scope: Scope, owner: Class | None) -> Value:
        found: list[Value] = []
        for atom in self._inference.evaluate(node, scope):
            if isinstance(atom, ClassObject):
                found.append(frozenset({Instance(atom.cls)}))
            elif isinstance(atom, External):
                found.append(self._external(atom.name, scope))
            else:
                found.append(ANYTHING)
        return join(*found) if found else ANYTHING

    def _external(self, name: str, scope: Scope) -> Value:
        last = name.rpartition(".")[2]
        if name in ("typing.Any", "builtins.object"):
            return ANYTHING
        if last in SEQUENCES:
            return frozenset({Sequence(ANYTHING)})
        if last in MAPPINGS:
            return frozenset({Mapping(ANYTHING)})
        if externals.canonical(name) == externals.MODULE_CLASS and self._means_model(scope.module):
            return self._loaded_model() or frozenset({ExternalInstance(name)})
        return frozenset({ExternalInstance(name)})

    def _means_model(self, module: Module) -> bool:
        """Whether "some module" is a loaded model there: in the API itself, and in code that imports it."""
        if module.name not in self._meant:
            packages = {name.partition(".")[0] for name in self._models}
            near = module.name.partition(".")[0] in packages or bool(packages & imported_packages(module.tree))
            self._meant[module.name] = near and not any(part in f".{module.name}." for part in NOT_WHOLE_MODELS)
        return self._meant[module.name]

    def _loaded_model(self) -> Value:
        """The model classes that the API has, each its own possibility."""
        if self._loaded is None:
            self._loaded = frozenset()
            atoms = []
            for name in self._models:
                module, _, attribute = name.rpartition(".")
                found = self._inference.from_import(module, attribute) if self._inference.program.owns(module) else ()
                atoms += [Instance(atom.cls, atom.cls.node.name) for atom in found if isinstance(atom, ClassObject)]
            self._loaded = frozenset(atoms)
        return self._loaded

    def _subscript(self, node: ast.Subscript, scope: Scope, owner: Class | None) -> Value:
        name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]

        def values() -> list[Value]:
            return [self.value(argument, scope, owner) for argument in arguments]

        if name == "Literal":
            texts = [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            return frozenset(Text(text) for text in texts) or ANYTHING
        if name == "Union":
            return join(*values())
        if name in ("Type", "type"):
            # Not of a loaded model (tagged): type[nn.Module] is any layer's class.
            of = [atom for atom in values()[0] if isinstance(atom, Instance) and not atom.tag]
            return frozenset(ClassObject(atom.cls) for atom in of) or ANYTHING
        if name in TRANSPARENT:
            first = values()[0]
            return join(first, frozenset({NONE})) if name == "Optional" else first
        if name in LAST_ARGUMENT:
            return values()[-1]
        if name in ("tuple", "Tuple"):
            return self._tuple(arguments, scope, owner)
        if name in MAPPINGS:
            found = values()
            return frozenset({Mapping(found[-1], found[0])})
        if name in SEQUENCES:
            return frozenset({Sequence(values()[0])})
        whole = self._named(node.value, scope, owner) if isinstance(node.value, (ast.Name, ast.Attribute)) else ANYTHING
        return whole if any(isinstance(atom, Instance) for atom in known(whole)) else ANYTHING

    def _tuple(self, arguments: list[ast.expr], scope: Scope, owner: Class | None) -> Value:
        found = [self.value(a, scope, owner) for a in arguments if not (isinstance(a, ast.Constant) and a.value is ...)]
        if not found:
            return frozenset({Sequence(ANYTHING)})
        return frozenset({Sequence(join(*found), tuple(found) if len(found) == len(arguments) else None)})
