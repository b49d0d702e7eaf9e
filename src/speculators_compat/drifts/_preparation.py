"""Changing speculators' per-batch preprocessing so that ``datasets`` can still hash and send it.

``build_eagle3_dataset`` hands ``datasets.map`` a lambda that looks up ``_preprocess_batch`` in its
module. ``datasets`` pickles that lambda to name its cache and to send it to its processes, and what
it refers to goes along. wrapt's proxies refuse to be pickled, and a plain function under the old
name would be taken for upstream's own: the cache of a run without the fix would then be served to a
run with it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from ..drift import Site
from ._training import PREPROCESSING

BATCH = "_preprocess_batch"

Batch = dict[str, Any]

#: Where ``datasets`` keeps the files of the preparation that is under way; None: where it likes.
CACHE_DIR: ContextVar[str | None] = ContextVar("CACHE_DIR", default=None)


def around_batch(key: str, function: Callable[[Any, Batch], Any]) -> Site:
    """A site that calls ``function(wrapped, call)`` in place of upstream's ``_preprocess_batch``.

    ``call`` has upstream's arguments by name, which differ by release: ``tokenizer`` is called ``processor`` from 0.6
    on and absent from 0.8 on. The function passes them on as ``wrapped(**call)``.

    Args:
        key: Names the change in cache fingerprints: the drift's id and a number to raise when its
            results change.
        function: A module-level function.
    """
    return Site(f"{PREPROCESSING}:{BATCH}", lambda wrapped: Around(key, function, wrapped), "wrap")


class Around:
    """A callable around another one, pickled by name and with the keys of all changes."""

    def __init__(self, key: str, function: Callable[[Any, Batch], Any], wrapped: Any) -> None:
        self.keys: tuple[str, ...] = (key, *getattr(wrapped, "keys", ()))
        self._function, self._wrapped = function, wrapped
        self._upstream: inspect.Signature = getattr(wrapped, "_upstream", None) or inspect.signature(wrapped)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._upstream.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._function(self._wrapped, dict(bound.arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        return _current, (self.keys,)


def _current(keys: tuple[str, ...]) -> Any:
    """What stands in the module now, in the process that asks."""
    return getattr(importlib.import_module(PREPROCESSING), BATCH)


def column(examples: Batch, name: str) -> list[Any]:
    """One column of a batch, with None for every row where it is absent."""
    rows = max(map(len, examples.values()), default=0)
    return list(examples.get(name) or [None] * rows)


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer itself, of a multimodal model's processor (0.6 and later) too."""
    from transformers import ProcessorMixin

    return processor.tokenizer if isinstance(processor, ProcessorMixin) else processor


def batch_tokenizer(call: Batch) -> Any:
    """The tokenizer that a batch is prepared with; None from 0.8 on, where a server has it."""
    return tokenizer_of(call.get("tokenizer", call.get("processor")))


class Rows:
    """Prepared rows of one batch, in the form of the installed release.

    Args:
        call: Upstream's arguments, as :func:`around_batch` gives them.
        results: Rows that are there already.
    """

    def __init__(self, call: Batch, results: Batch | None = None) -> None:
        self.results: Batch = results or {"input_ids": [], "loss_mask": []}
        self._minimum = call.get("minimum_valid_tokens") or 0
        if "minimum_valid_tokens" in call:  # since 0.5, and with it the column of lengths
            self.results.setdefault("seq_len", [])

    def add(self, ids: Sequence[int], mask: Sequence[int]) -> str:
        """Add a row, unless it has too few trainable tokens.

        Args:
            ids: Token ids.
            mask: One 0 or 1 for every id.

        Returns:
            Why it was left out; nothing if it was not.
        """
        import torch

        if sum(mask) < self._minimum:
            return f"fewer than {self._minimum} trainable tokens"
        row = {"input_ids": torch.tensor(ids, dtype=torch.long), "loss_mask": torch.tensor(mask, dtype=torch.long)}
        for name, values in self.results.items():
            # What else upstream collects (the messages of multimodal rows) a row of tokens does not have.
            values.append(len(ids) if name == "seq_len" else row.get(name))
        return ""
