"""Finds the drifts of this folder: one module, one ``DRIFT``, one file name equal to its id."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ..drift import Drift

__all__ = ["catalogue"]


@functools.lru_cache(maxsize=1)
def catalogue() -> tuple[Drift, ...]:
    """Every drift, sorted by id.

    Raises:
        ValueError: A module holds no drift, or its id is not its file name (which also rules out duplicates).
    """
    found = []
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        drift = getattr(importlib.import_module(f"{__name__}.{module.name}"), "DRIFT", None)
        if not isinstance(drift, Drift) or drift.id != module.name:
            raise ValueError(f"drifts/{module.name}.py must define DRIFT with id {module.name!r}")
        found.append(drift)
    return tuple(sorted(found, key=lambda drift: drift.id))
