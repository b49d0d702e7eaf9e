"""Names that a module of speculators no longer has: found where they are now, or refused in words.

Python asks a module's ``__getattr__`` only for what the module lacks, so a release that still has a name keeps its own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from ..drift import RemovedNameError, Site, supply

Finder = Callable[[], Any]


def old_names(module: str, finders: Mapping[str, Finder]) -> Site:
    """The site that answers for a module's old names.

    Args:
        module: The module that had them.
        finders: What to call for each; it returns the object or raises :class:`RemovedNameError`.
    """

    def make(missing: Any) -> Callable[[str], Any]:
        def look_up(name: str) -> Any:
            if name not in finders:
                raise AttributeError(f"module {module!r} has no attribute {name!r}")
            return finders[name]()

        return look_up

    return supply(f"{module}:__getattr__", make)


def found_in(*modules: str, name: str) -> Finder:
    """``name`` of the first of these modules that exists; the newest place comes first."""

    def find() -> Any:
        home = next((module for module in modules[:-1] if _exists(module)), modules[-1])
        return getattr(importlib.import_module(home), name)

    return find


def _exists(module: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):  # of a package that holds it
        return importlib.util.find_spec(module) is not None
    return False


def gone(name: str, last: str, instead: str) -> Finder:
    """Refuse a name.

    Args:
        name: With its module.
        last: The last release that has it.
        instead: What to use now.
    """

    def refuse() -> Any:
        raise RemovedNameError(f"speculators removed {name} after {last}. {instead}")

    return refuse
