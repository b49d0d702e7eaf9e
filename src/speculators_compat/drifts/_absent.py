"""Modules that a package does not have, or no longer: a folder of ours, last on its search path, stands in for them.

The importer fails before its own module exists, so the package is what such a fix changes. No module of the package's
own is shadowed, because its own folders come first.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..drift import Site

FOLDER = Path(__file__).parent.parent / "absent"


def _folder(package: str) -> Path:
    return FOLDER.joinpath(*package.split("."))


def is_absent(package: str, module: str) -> Callable[[], bool]:
    """A probe: whether the package lacks the module. The answer is the same before and after the fix."""

    def probe() -> bool:
        spec = importlib.util.find_spec(f"{package}.{module}")
        return spec is None or Path(spec.origin or "").parent == _folder(package)

    return probe


def searched_too(package: str) -> Site:
    """The package's search path, with our folder at its end; packages with several such folders may stack them."""

    def extended(path: Any) -> list[str]:
        return [*path, str(_folder(package))]

    return Site(f"{package}:__path__", extended, "wrap")
