"""Results of any number of prompts as they come, from a generator whose memory does not grow with their number."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..drift import UsageError
from .ledger import Ledger
from .loop import DEPTH, Engine, Pipeline
from .prompts import Prompt
from .window import Window

__all__ = ["SourceError", "Stream", "copy_threads", "extract", "guarded"]


def copy_threads() -> int:
    """Threads that copy states out of the slots: memory, not cores, limits more than eight."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2))


class Stream(Iterator[dict[str, Any]]):
    """What ``generator.stream()`` returns: an iterator of results, closed when it is exhausted, dropped or left.

    Attributes:
        seconds: Where the time of the caller's thread went so far: ``engine`` (waiting for a step), ``copy`` (waiting
            for states to be copied out of the transport, or for a free slot), ``caller`` (between two results, with
            the caller).
    """

    def __init__(self, results: Iterator[dict[str, Any]], seconds: dict[str, float]) -> None:
        self._results, self.seconds = results, seconds

    def __next__(self) -> dict[str, Any]:
        return next(self._results)

    def close(self) -> None:
        """Give up what is in work and free the generator for other calls. Closing twice is once."""
        self._results.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Stream:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def extract(
    engine: Engine,
    prompts: Iterator[Prompt],
    *,
    size: float,
    ordered: bool,
    copy: bool,
    seconds: dict[str, float],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run prompts through an engine.

    Args:
        engine: With no other call under way.
        prompts: Read as far as ``size`` and the steps in flight ask for.
        size: Prompts that wait for a step or, complete, for their turn; ``math.inf`` for no limit.
        ordered: Hand results out in the order of ``prompts``; otherwise as they finish.
        copy: Results own their memory; otherwise they may lie in the transport.
        seconds: Kept up to date, as :class:`Stream` describes.

    Yields:
        Index and result of each prompt.
    """
    with ThreadPoolExecutor(copy_threads(), "speculators-compat-copy") as pool:
        ledger = Ledger(engine.num_layers, pool.submit)
        pipeline = Pipeline(engine, ledger, lend=not copy)
        window = Window(prompts, engine.budget, engine.max_prompts)
        try:
            yield from _run(pipeline, window, ledger, size, ordered, seconds)
        except (UsageError, SourceError, GeneratorExit):
            # The workers are in step: what is left is taken back, and the next call starts clean.
            pipeline.drain()
            raise
        pipeline.flush()


class SourceError(Exception):
    """Carries an exception of the caller's own iterable, which leaves the engine usable."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def guarded(source: Iterable[Any]) -> Iterator[Any]:
    """Iterate over what the caller gave, so that its exceptions are told from ours."""
    try:
        yield from source
    except Exception as error:
        raise SourceError(error) from error


def _run(
    pipeline: Pipeline, window: Window, ledger: Ledger, size: float, ordered: bool, seconds: dict[str, float]
) -> Iterator[tuple[int, dict[str, Any]]]:
    held: dict[int, str] = {}
    given = 0
    while True:
        due = _due(held, given, ordered)
        # First the engine, then the caller: the results of a step are handed out while the next ones run.
        _launch_ahead(pipeline, window, size - (len(held) - len(due)))
        for index in due:
            begun = time.monotonic()
            result = ledger.take(held.pop(index))
            given += 1
            back = time.monotonic()
            seconds["copy"] += back - begun
            yield index, result
            del result  # or the last result of a step would keep its slot while the next is waited for
            seconds["caller"] += time.monotonic() - back
        if pipeline.flying:
            held.update(pipeline.receive())
            seconds["engine"], seconds["copy"] = pipeline.note(seconds["engine"], seconds["copy"])
        elif window.exhausted and not window and not held:
            return


def _launch_ahead(pipeline: Pipeline, window: Window, size: float) -> None:
    """Launch as many steps as may be in flight, packed from ``size`` prompts."""
    while pipeline.flying < DEPTH:
        window.fill(size)
        for prompt in window.take(pipeline.waiting_tokens, pipeline.waiting_prompts):
            pipeline.add(prompt)
        if not pipeline.waiting_prompts or not pipeline.launch():
            return


def _due(held: dict[int, str], given: int, ordered: bool) -> list[int]:
    """Indices of the complete prompts that may be handed out now."""
    if not ordered:
        return list(held)
    due: list[int] = []
    while given + len(due) in held:
        due.append(given + len(due))
    return due
