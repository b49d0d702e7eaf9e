"""The parsed modules of the packages under audit, and the names that each of them binds."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ..drift import UsageError
from .sources import Source
from .values import Binding, Module

__all__ = ["Program", "imported_packages", "is_type_checking", "target_bindings"]

# A tree of a 7,000-line module takes some 60 MB; one audit parses about 80 modules, and neighbours share many files.
KEPT_TREES = 160


class Program:
    """Modules by name, parsed on first use.

    Args:
        sources: The packages that may be read; everything else is external.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = {source.package: source for source in sources}
        self._modules: dict[str, Module | None] = {}

    def owns(self, name: str) -> bool:
        """Whether a dotted name begins with one of the packages."""
        return name.partition(".")[0] in self.sources

    def source_of(self, name: str) -> Source:
        """The source that holds a module of this name."""
        return self.sources[name.partition(".")[0]]

    def exists(self, name: str) -> bool:
        """Whether a module, or a folder of modules, has this name."""
        if not self.owns(name):
            return False
        source = self.source_of(name)
        return source.path_of(name) is not None or source.is_folder(name)

    def module(self, name: str) -> Module | None:
        """The module, parsed; None if there is none.

        Raises:
            UsageError: It is there and is no Python that this interpreter can parse.
        """
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def _parse(self, name: str) -> Module | None:
        if not self.owns(name):
            return None
        source = self.source_of(name)
        path = source.path_of(name)
        content = source.read(path) if path else None
        if path is None or content is None:
            return None
        tree = _tree(content, f"{path} of {source.label}")
        lines = content.decode("utf-8", errors="replace").splitlines()
        module = Module(name, path, tree, lines, path.endswith("__init__.py"))
        for binding_name, binding in block_bindings(tree.body, module):
            module.bindings.setdefault(binding_name, []).append(binding)
        return module

    def homes(self, name: str, package: str) -> list[str]:
        """Modules of a package that define a name at top level: where it went."""
        source = self.sources[package]
        found = []
        wanted = re.compile(rf"^(?:(?:async def|class|def)\s+{name}\b|{name}\s*(?::[^=\n]+)?=(?!=))", re.MULTILINE)
        for path in source.paths():
            content = source.read(path)
            if content and name.encode() in content and wanted.search(content.decode("utf-8", errors="replace")):
                parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
                found.append(".".join(parts))
        return sorted(found, key=lambda module: (module.count("."), module))


_trees: OrderedDict[bytes, ast.Module] = OrderedDict()


def _tree(content: bytes, name: str) -> ast.Module:
    """The tree of a file; files that two releases have in common are parsed once."""
    key = hashlib.sha256(content).digest()
    if key in _trees:
        _trees.move_to_end(key)
    else:
        _trees[key] = parse(content, name)
        if len(_trees) > KEPT_TREES:
            _trees.popitem(last=False)
    return _trees[key]


def parse(content: bytes, name: str) -> ast.Module:
    """Parse one file.

    Raises:
        UsageError: It cannot be parsed; says where.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in docstrings are not this reader's business
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", None) or type(error).__name__
        raise UsageError(
            "Every module must be Python.", f"{name}{f', line {line}' if line else ''}: {reason}", "Check the source."
        ) from None


def imported_packages(tree: ast.Module) -> set[str]:
    """Top-level packages that a module names in an absolute import, at any depth."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is ``TYPE_CHECKING``."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def block_bindings(
    body: list[ast.stmt], module: Module | None = None, type_only: bool = False
) -> Iterator[tuple[str, Binding]]:
    """Names that a block of statements binds, nested blocks included, functions and classes not entered."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, Binding(node, type_only)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _imports(node, module, type_only)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from target_bindings(target, node, node.value, type_only)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, Binding(node, type_only, node.value, node.annotation)
        elif isinstance(node, ast.If):
            checking = is_type_checking(node.test)
            yield from block_bindings(node.body, module, type_only or checking)
            yield from block_bindings(node.orelse, module, type_only)
        else:
            yield from _inner_bindings(node, module, type_only)


def _imports(
    node: ast.Import | ast.ImportFrom, module: Module | None, type_only: bool
) -> Iterator[tuple[str, Binding]]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, Binding(node, type_only, imported=(0, whole, ""))
        elif alias.name != "*":
            origin = (node.level, node.module or "", alias.name)
            yield alias.asname or alias.name, Binding(node, type_only, imported=origin)
        elif module is not None:
            module.stars.append((node.level, node.module or ""))


def _inner_bindings(node: ast.stmt, module: Module | None, type_only: bool) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from target_bindings(item.optional_vars, node, item.context_expr, type_only)
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield from target_bindings(node.target, node, ast.Subscript(node.iter, ast.Constant(0), ast.Load()), type_only)
    if isinstance(node, ast.Try):
        for handler in node.handlers:
            yield from block_bindings(handler.body, module, type_only)
    for name in ("body", "orelse", "finalbody"):
        yield from block_bindings(getattr(node, name, []), module, type_only)
    for case in getattr(node, "cases", []):
        yield from block_bindings(case.body, module, type_only)


def target_bindings(
    target: ast.expr, node: ast.AST, value: ast.expr | None, type_only: bool = False
) -> Iterator[tuple[str, Binding]]:
    """Names that an assignment's target binds."""
    if isinstance(target, ast.Name):
        yield target.id, Binding(node, type_only, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Name):
                yield element.id, Binding(node, type_only, value, index=index)
