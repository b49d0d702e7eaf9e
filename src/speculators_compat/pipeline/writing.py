"""Threads that write samples while the engine goes on, and what the time of an extraction went to."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

__all__ = ["Writers", "shares"]


class Writers:
    """A pool of threads with a bounded backlog: a slow disk holds the engine back instead of filling memory.

    Args:
        threads: Most threads; one is started only when all others are busy.

    Attributes:
        waited_s: Seconds that the caller has waited for the disk.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "speculators-compat-write")
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._open = 0
        # One sample on each thread and one waiting for it: no thread idles between two.
        self._most = 2 * threads
        self.waited_s = 0.0

    def submit(self, write: Callable[..., Any], *args: Any) -> list[Any]:
        """Write on a thread; waits while the backlog is full.

        Returns:
            What earlier writes returned, as they finished: none waits for a longer one that began before it.

        Raises:
            Exception: What an earlier write raised.
        """
        written = self._collect(self._most - 1)
        self._open += 1
        self._pool.submit(write, *args).add_done_callback(self._done.put)
        return written

    def finish(self) -> list[Any]:
        """Wait for all writes; returns and raises as :meth:`submit` does."""
        return self._collect(0)

    def _collect(self, most: int) -> list[Any]:
        written = []
        begun = time.monotonic()
        while self._open > most or not self._done.empty():
            done = self._done.get()
            self._open -= 1
            written.append(done.result())
        self.waited_s += time.monotonic() - begun
        return written

    def __enter__(self) -> Writers:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)


def shares(wall_s: float, stream_s: Mapping[str, float], disk_s: float) -> dict[str, float]:
    """Shares of an extraction's wall time, as its one driving thread spent it.

    Args:
        wall_s: Seconds from the first prompt to the last file.
        stream_s: ``seconds`` of the generator's stream.
        disk_s: Seconds that the thread waited for files to be written.

    Returns:
        ``engine``, ``copy`` and ``disk``: waiting for each; ``other``: scheduling, checks, Python. The largest is what
        limits.
    """
    named = {"engine": stream_s["engine"], "copy": stream_s["copy"], "disk": disk_s}
    found = {name: seconds / wall_s for name, seconds in named.items()} if wall_s > 0 else dict.fromkeys(named, 0.0)
    found["other"] = max(0.0, 1.0 - sum(found.values()))
    return {name: round(share, 3) for name, share in found.items()}
