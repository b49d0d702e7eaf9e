"""What a definition says of itself: decorators, defaults; and what an import names."""

from __future__ import annotations

import ast

from .scopes import parameters_of
from .values import Function, Module

__all__ = [
    "absolute",
    "decorator_names",
    "default_of",
    "is_class_method",
    "is_generator_context",
    "is_static",
]


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
