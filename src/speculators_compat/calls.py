"""Small helpers that drifts share: what a callable accepts, and how to add or drop one argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["accepts", "add_default", "default_of", "drop_unknown"]

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


def accepts(function: Any, name: str) -> bool:
    """Whether a callable (or a dataclass, InitVars included) takes an argument of this name.

    A ``**kwargs`` parameter counts as "no": it takes the name without telling what becomes of it.
    """
    return name in inspect.signature(function).parameters


def default_of(config: Any, name: str) -> Any:
    """Default of a config class's field; a pydantic ``Field(default=x)`` counts as ``x``."""
    default = inspect.signature(config).parameters[name].default
    return getattr(default, "default", default)


def add_default(name: str, value: Any | Callable[[], Any]) -> Wrapper:
    """A wrapt wrapper that passes ``name=value`` where the callee takes it and the caller did not give it."""

    def wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name not in kwargs and accepts(wrapped, name):
            kwargs = {**kwargs, name: value() if callable(value) else value}
        return wrapped(*args, **kwargs)

    return wrapper


def drop_unknown(name: str) -> Wrapper:
    """A wrapt wrapper that leaves ``name`` out where the callee no longer takes it."""

    def wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in kwargs and not accepts(wrapped, name):
            kwargs = {key: value for key, value in kwargs.items() if key != name}
        return wrapped(*args, **kwargs)

    return wrapper
