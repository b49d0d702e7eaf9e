"""The ring of shared slots that carries hidden states from the worker to the generator's process.

One slot takes one step. The worker fills it, the reply queue carries only the slot's number, and the generator's
process reads the tensors where they lie. A slot is free again when the last tensor on it has been dropped; a step is
launched only into a free slot, so a slow reader holds the engine back instead of losing rows.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import queue
import weakref
from dataclasses import asdict, dataclass
from typing import Any

from .shared import Segment, free_bytes

__all__ = ["Layout", "Lease", "Ring", "Slot", "slot_on"]

#: Steps whose slots a ring holds by default: three in flight, one being copied, two lent to the caller.
SLOTS = 6
#: With fewer, a step could not be launched while the one before it is read.
FEWEST = 2
_PAGE = 4096


@dataclass(frozen=True)
class Layout:
    """Geometry of a slot.

    Attributes:
        layers: Captured layers.
        rows: Tokens of the largest step.
        width: Hidden size.
        dtype: Name of a torch dtype.
        itemsize: Bytes of one element.
        slots: Slots in the ring.
    """

    layers: int
    rows: int
    width: int
    dtype: str
    itemsize: int
    slots: int = SLOTS

    @property
    def _bounds_at(self) -> int:
        return 8 * self.rows

    @property
    def _states_at(self) -> int:
        return _round_up(self._bounds_at + 8 * self.layers, _PAGE)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot: token ids, bounds of each layer, states."""
        return _round_up(self._states_at + self.layers * self.rows * self.width * self.itemsize, _PAGE)

    @property
    def size(self) -> int:
        """Bytes of the ring."""
        return self.slots * self.slot_bytes

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the worker."""
        return asdict(self)


@dataclass(frozen=True)
class Slot:
    """Tensors on one slot's memory.

    Attributes:
        token_ids: int64 [rows].
        bounds: float32 [2, layers], the smallest and the largest value of each layer.
        states: [layers, rows, width].
    """

    token_ids: Any
    bounds: Any
    states: Any


def slot_on(memory: Any, layout: Layout, start: int) -> Slot:
    """Lay a slot's tensors on ``memory``, ``start`` bytes in; they keep it alive."""
    import torch

    def tensor(dtype: Any, at: int, *shape: int) -> Any:
        count = math.prod(shape)
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=start + at).view(*shape)

    states_at = layout._states_at
    return Slot(
        tensor(torch.int64, 0, layout.rows),
        tensor(torch.float32, layout._bounds_at, 2, layout.layers),
        tensor(getattr(torch, layout.dtype), states_at, layout.layers, layout.rows, layout.width),
    )


class Lease:
    """The right to read one slot; it ends when the lease and every tensor taken from it are gone."""

    def __init__(self, layout: Layout, mapping: mmap.mmap, number: int, give_back: Any) -> None:
        self._layout = layout
        # One exporter for each lease: tensors hold on to it, and its end is the end of the lease.
        self._memory = (ctypes.c_char * layout.slot_bytes).from_buffer(mapping, number * layout.slot_bytes)
        weakref.finalize(self._memory, give_back, number).atexit = False

    @property
    def slot(self) -> Slot:
        """The whole slot."""
        return slot_on(self._memory, self._layout, 0)

    def rows(self, layer: int, first: int, count: int) -> Any:
        """Rows of one layer, [count, width], as a tensor with a storage of exactly these rows."""
        import torch

        layout = self._layout
        row_bytes = layout.width * layout.itemsize
        at = layout._states_at + (layer * layout.rows + first) * row_bytes
        flat = torch.frombuffer(self._memory, dtype=getattr(torch, layout.dtype), count=count * layout.width, offset=at)
        return flat.view(count, layout.width)


class Ring:
    """The generator's end of the transport.

    Args:
        layout: Geometry; fewer slots are made where the shared memory cannot hold all of them.

    Raises:
        UsageError: The shared memory cannot hold the fewest slots that work.
    """

    def __init__(self, layout: Layout) -> None:
        affordable = free_bytes() // layout.slot_bytes
        slots = max(FEWEST, min(layout.slots, affordable))
        self.layout = Layout(**{**asdict(layout), "slots": slots})
        self.segment = Segment.create(self.layout.size)
        # Its put() may interrupt any code, its own get() included: tensors can be dropped anywhere.
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._leased: set[int] = set()
        for number in range(slots):
            self._free.put(number)

    @property
    def free(self) -> int:
        """Slots that nobody uses."""
        return self._free.qsize()

    @property
    def lent(self) -> int:
        """Slots on which somebody has a tensor."""
        return len(self._leased)

    def acquire(self, timeout: float | None = None) -> int | None:
        """Take a free slot.

        Args:
            timeout: Seconds to wait for one; None: do not wait.

        Returns:
            Its number, or None.
        """
        try:
            return self._free.get(block=timeout is not None, timeout=timeout)
        except queue.Empty:
            return None

    def release(self, number: int) -> None:
        """Give back a slot that was taken and never leased."""
        self._free.put(number)

    def lease(self, number: int) -> Lease:
        """Read a slot that was taken; it is given back when the lease's last tensor is dropped."""
        self._leased.add(number)
        return Lease(self.layout, self.segment.map, number, self._return)

    def _return(self, number: int) -> None:
        self._leased.discard(number)
        self._free.put(number)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
