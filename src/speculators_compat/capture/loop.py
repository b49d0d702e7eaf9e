"""The generator's corrected loop: every prompt prefilled exactly once, with steps launched ahead.

The scheduler's own bookkeeping does not depend on what a step computes (nothing is ever decoded), so step k + 1 is
scheduled and launched while step k computes, and the states of step k - 1 are read meanwhile. A request is finished as
soon as its last token is scheduled: its blocks and its place go to the next prompt at once, and it never decodes.
Upstream's loops finish all at the end, which starves the 33rd prompt, or after a first chunk, which loses the rest.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..drift import UsageError
from .ledger import CaptureError, Ledger, Step
from .prompts import Prompt
from .transport import Lease, Ring

__all__ = ["DEPTH", "Engine", "Pipeline"]

#: Steps that have been launched and not been read. Two keep an accelerator busy, the third covers this process's own
#: work and the way of the replies.
DEPTH = 3


@dataclass(frozen=True)
class Engine:
    """What one call needs of a generator.

    Attributes:
        scheduler: vLLM's.
        executor: vLLM's, its workers with our extension and an open transport.
        ring: The transport.
        request: Makes vLLM's request from an id and token ids.
        abort: The ``RequestStatus`` of a request that is done here.
        call: Begins the ids of this call's requests.
        num_layers: Captured layers.
        budget: Tokens of a step.
        max_prompts: Prompts of a step.
    """

    scheduler: Any
    executor: Any
    ring: Ring
    request: Callable[[str, list[int]], Any]
    abort: Any
    call: str
    num_layers: int
    budget: int
    max_prompts: int


@dataclass(frozen=True)
class _Flight:
    """A step that has been launched and not been read."""

    slot: int
    counts: dict[str, int]
    starts: dict[str, int]
    launched: Any


class Pipeline:
    """Steps of one engine, launched ahead and read in order.

    Args:
        engine: The engine.
        ledger: The books.
        lend: Whether prompts may keep a slot's memory while the ring has slots to spare.
    """

    def __init__(self, engine: Engine, ledger: Ledger, lend: bool) -> None:
        self._engine, self._ledger, self._lend = engine, ledger, lend
        self._prompts: dict[str, Prompt] = {}
        self._left: dict[str, int] = {}
        self._flying: deque[_Flight] = deque()
        self._engine_s = self._slots_s = 0.0

    @property
    def waiting_tokens(self) -> int:
        """Tokens that the scheduler has been given and has not scheduled."""
        return sum(self._left.values())

    @property
    def waiting_prompts(self) -> int:
        """Prompts that these tokens belong to."""
        return len(self._left)

    @property
    def flying(self) -> int:
        """Steps launched and not read."""
        return len(self._flying)

    def note(self, engine_s: float, slots_s: float) -> tuple[float, float]:
        """Add the seconds waited since the last call: for the engine to finish a step, and for a free slot."""
        noted = engine_s + self._engine_s, slots_s + self._slots_s
        self._engine_s = self._slots_s = 0.0
        return noted

    def add(self, prompt: Prompt) -> None:
        """Give a prompt to the scheduler."""
        request_id = f"{self._engine.call}-{prompt.index}"
        self._ledger.add(request_id, prompt)
        self._engine.scheduler.add_request(self._engine.request(request_id, prompt.token_ids))
        self._prompts[request_id] = prompt
        self._left[request_id] = len(prompt.token_ids)

    def launch(self) -> bool:
        """Schedule a step and send it off, if there is something to run and a slot for it.

        Returns:
            False if no slot is free.

        Raises:
            UsageError: The KV cache cannot hold a prompt.
        """
        number = self._slot()
        if number is None:
            return False
        scheduled = self._engine.scheduler.schedule()
        if scheduled.total_num_scheduled_tokens == 0:
            self._engine.ring.release(number)
            # schedule() has handed out the ids that ended since the last step: they must still reach the workers.
            self._tell_finished(scheduled)
            raise self._starved()
        counts, starts = dict(scheduled.num_scheduled_tokens), _starts(scheduled)
        launched = self._rpc("_launch_step", scheduled, number)
        self._flying.append(_Flight(number, counts, starts, launched))
        self._retire(counts, starts)
        return True

    def receive(self) -> dict[int, str]:
        """Read the oldest step.

        Returns:
            Request ids by index of the prompts that are now complete.

        Raises:
            CaptureError: Rows do not add up.
            RuntimeError: A worker failed.
        """
        flight = self._flying.popleft()
        begun = time.monotonic()
        # Sent now, behind the launches of later steps: a worker that waited first would launch into an idle device.
        arrived = self._rpc("_wait_step", flight.slot)
        reply = _only(flight.launched.result())
        _only(arrived.result())
        self._engine_s += time.monotonic() - begun
        ring = self._engine.ring
        # Never the last slots: a caller who keeps every result must not stop the engine.
        lend = self._lend and ring.free > DEPTH - self.flying
        lease = ring.lease(flight.slot)
        slot = _read(lease, sum(flight.counts.values()), reply["watched"])
        finished = self._ledger.place(
            Step(_order(reply), flight.counts, flight.starts), {**slot, "lend": lease.rows if lend else None}
        )
        return {self._prompts.pop(request_id).index: request_id for request_id in finished}

    def drain(self) -> None:
        """Give up what is in work: read and drop every step in flight, and leave scheduler and workers clean."""
        while self._flying:
            flight = self._flying.popleft()
            arrived = self._rpc("_wait_step", flight.slot)
            flight.launched.result()
            arrived.result()
            self._engine.ring.release(flight.slot)
        self._finish(list(self._left))
        self._left.clear()
        self._ledger.clear()
        self.flush()

    def flush(self) -> None:
        """Tell the workers which requests ended; without it they keep their state until the next call, or forever."""
        scheduled = self._engine.scheduler.schedule()
        if scheduled.total_num_scheduled_tokens:
            raise CaptureError("a finished call still has tokens scheduled")
        self._tell_finished(scheduled)

    def _rpc(self, method: str, *args: Any) -> Any:
        """Call every worker without waiting; a future of their replies."""
        return self._engine.executor.collective_rpc(method, args=args, non_block=True)

    def _slot(self) -> int | None:
        """A free slot; waits for one only if no step in flight will bring the next."""
        ring = self._engine.ring
        number = ring.acquire()
        if number is None and not self._flying:
            begun = time.monotonic()
            # What keeps it are copies under way: lending leaves the last slots alone.
            number = ring.acquire(timeout=600)
            self._slots_s += time.monotonic() - begun
            if number is None:
                raise CaptureError("no slot of the transport became free in ten minutes")
        return number

    def _retire(self, counts: Any, starts: dict[str, int]) -> None:
        """Finish every request whose last token is in the step."""
        done = []
        for request_id, count in counts.items():
            self._left[request_id] = len(self._prompts[request_id].token_ids) - starts[request_id] - count
            if self._left[request_id] <= 0:
                del self._left[request_id]
                done.append(request_id)
        self._finish(done)

    def _finish(self, request_ids: list[str]) -> None:
        if request_ids:
            self._engine.scheduler.finish_requests(request_ids, self._engine.abort)

    def _tell_finished(self, scheduled: Any) -> None:
        """Run an empty step for the sake of the finished ids that it carries."""
        if scheduled.finished_req_ids:
            self._engine.executor.execute_model(scheduled)

    def _starved(self) -> UsageError:
        longest = max(len(self._prompts[request_id].token_ids) for request_id in self._left)
        cache = self._engine.scheduler.vllm_config.cache_config
        blocks, size = cache.num_gpu_blocks, cache.block_size
        return UsageError(
            f"The KV cache must hold a whole prompt: {longest} tokens need {-(-longest // size) + 1} blocks of {size}.",
            f"{blocks} blocks ({len(self._left)} prompts unfinished)",
            "Raise gpu_memory_utilization (on a CPU: VLLM_CPU_KVCACHE_SPACE) or lower max_model_len.",
        )


def _only(replies: list[Any]) -> Any:
    """The one reply of a worker that captures."""
    answers = [reply for reply in replies if reply is not None]
    if len(answers) != 1:
        raise CaptureError(f"one worker must return states, {len(answers)} of {len(replies)} did")
    return answers[0]


def _order(reply: Any) -> list[str]:
    """Request ids in the order of a step's rows."""
    return list(reply["req_ids"])


def _read(lease: Lease, rows: int, watched: bool) -> dict[str, Any]:
    """A slot as the ledger takes it."""
    slot = lease.slot
    bounds = slot.bounds.tolist()
    return {
        "states": [layer[:rows] for layer in slot.states],
        "finite": [math.isfinite(low) and math.isfinite(high) for low, high in zip(*bounds, strict=True)],
        "token_ids": slot.token_ids[:rows] if watched else None,
    }


def _starts(scheduled: Any) -> dict[str, int]:
    """Tokens already computed of each scheduled request, as the workers were told."""
    cached = scheduled.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    starts.update({new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs})
    return starts
