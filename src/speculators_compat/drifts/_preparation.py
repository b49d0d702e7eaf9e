"""Changing speculators' per-batch preprocessing so that ``datasets`` can still hash and send it.

``build_eagle3_dataset`` hands ``datasets.map`` a lambda that looks up ``_preprocess_batch`` in its
module. ``datasets`` pickles that lambda to name its cache and to send it to its processes, and what
it refers to goes along. wrapt's proxies refuse to be pickled, and a plain function under the old
name would be taken for upstream's own: the cache of a run without the fix would then be served to a
run with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..drift import Site
from ._training import PREPROCESSING

BATCH = "_preprocess_batch"

Batch = dict[str, Any]


def around_batch(key: str, function: Callable[..., Any]) -> Site:
    """A site that calls ``function(wrapped, ...)`` in place of upstream's ``_preprocess_batch``.

    Args:
        key: Names the change in cache fingerprints: the drift's id and a number to raise when its
            results change.
        function: A module-level function.
    """
    return Site(f"{PREPROCESSING}:{BATCH}", lambda wrapped: Around(key, function, wrapped), "wrap")


class Around:
    """A callable around another one, pickled by name and with the keys of all changes."""

    def __init__(self, key: str, function: Callable[..., Any], wrapped: Any) -> None:
        self.keys: tuple[str, ...] = (key, *getattr(wrapped, "keys", ()))
        self._function, self._wrapped = function, wrapped

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._wrapped, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _current, (self.keys,)


def _current(keys: tuple[str, ...]) -> Any:
    """What stands in the module now, in the process that asks."""
    return getattr(importlib.import_module(PREPROCESSING), BATCH)


def column(examples: Batch, name: str) -> list[Any]:
    """One column of a batch, with None for every row where it is absent."""
    rows = max(map(len, examples.values()), default=0)
    return list(examples.get(name) or [None] * rows)
