"""The worker's end of the transport: from the capture hooks into the slots.

On an accelerator, hooks write into one of two device buffers, and a stream of its own copies a finished step into
page-locked shared memory while the next step computes. On a CPU, hooks write into the slot itself.

This module is imported in workers only; it may import torch.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from .shared import Segment
from .transport import Layout, Slot, slot_on

__all__ = ["Outbox"]


class Outbox:
    """Slots of the ring as this worker writes them, one step at a time.

    Args:
        name: Name of the shared segment.
        layout: Its geometry.
        device: Where the model's states are.
    """

    def __init__(self, name: str, layout: Layout, device: torch.device) -> None:
        segment = Segment.attach(name)
        self.layout = layout
        self._slots = [slot_on(segment.map, layout, number * layout.slot_bytes) for number in range(layout.slots)]
        self._rows = 0
        self._target: Slot = self._slots[0]
        self._watched = False
        self._copier = _Copier(layout, segment, device) if device.type == "cuda" else None

    def begin(self, number: int, rows: int) -> None:
        """Take slot ``number`` for a step of ``rows`` tokens."""
        self._target = self._slots[number] if self._copier is None else self._copier.begin(number)
        self._rows, self._watched = rows, False

    def write(self, layer: int, output: Any) -> None:
        """Put the residual stream after a decoder layer into the slot.

        A layer returns ``(hidden, residual)``, whose sum is the stream, or the stream itself. vLLM's fused add-norm
        overwrites both tensors in the next layer, hence the copy now.

        Raises:
            RuntimeError: The states are not of the shape or dtype that the model's configuration announces.
        """
        hidden, residual = output, None
        if isinstance(output, tuple):
            hidden, residual = output[0], output[1] if len(output) > 1 else None
        target = self._target.states[layer, : self._rows]
        # Rows past those of the step are padding of the batch, never a prompt's token.
        hidden = hidden[: self._rows]
        if hidden.shape != target.shape or hidden.dtype != target.dtype:
            raise RuntimeError(
                f"states must be {tuple(target.shape)} of {target.dtype}, as the model's configuration says; a decoder "
                f"layer gave {tuple(hidden.shape)} of {hidden.dtype}"
            )
        if residual is None:
            target.copy_(hidden)
        else:
            torch.add(hidden, residual[: self._rows], out=target)

    def write_ids(self, token_ids: torch.Tensor) -> None:
        """Put the token ids that the embedding saw into the slot."""
        self._target.token_ids[: self._rows].copy_(token_ids[: self._rows])
        self._watched = True

    def finish(self) -> bool:
        """The step's forward pass has been launched; start bringing it over.

        Returns:
            Whether token ids were written.
        """
        if self._copier is None:
            _measure(self._target, self._rows)
        else:
            self._copier.finish(self._rows)
        return self._watched

    def wait(self, number: int) -> None:
        """Block until slot ``number`` is complete."""
        if self._copier is not None:
            self._copier.wait(number)


class _Copier:
    """Device buffers, and the stream that empties them into the slots."""

    def __init__(self, layout: Layout, segment: Segment, device: torch.device) -> None:
        _page_lock(segment)
        self._slots = [slot_on(segment.map, layout, number * layout.slot_bytes) for number in range(layout.slots)]
        self._stream = torch.cuda.Stream(device)
        shape = (layout.layers, layout.rows, layout.width)
        self._buffers = [
            Slot(
                torch.empty(layout.rows, dtype=torch.int64, device=device),
                torch.empty(2, layout.layers, device=device),
                torch.empty(shape, dtype=getattr(torch, layout.dtype), device=device),
            )
            for _ in range(2)
        ]
        # Blocking: a worker that waits leaves its core to the threads that copy and write.
        self._done = [torch.cuda.Event(blocking=True) for _ in range(layout.slots)]
        self._emptied: list[torch.cuda.Event | None] = [None, None]
        self._turn, self._number = 0, 0

    def begin(self, number: int) -> Slot:
        self._turn, self._number = 1 - self._turn, number
        emptied = self._emptied[self._turn]
        if emptied is not None:
            torch.cuda.current_stream().wait_event(emptied)
        return self._buffers[self._turn]

    def finish(self, rows: int) -> None:
        source, target = self._buffers[self._turn], self._slots[self._number]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            _measure(source, rows)
            target.bounds.copy_(source.bounds, non_blocking=True)
            target.token_ids[:rows].copy_(source.token_ids[:rows], non_blocking=True)
            for layer in range(source.states.shape[0]):
                target.states[layer, :rows].copy_(source.states[layer, :rows], non_blocking=True)
            done = self._done[self._number]
            done.record(self._stream)
        self._emptied[self._turn] = done

    def wait(self, number: int) -> None:
        self._done[number].synchronize()


def _measure(slot: Slot, rows: int) -> None:
    """Smallest and largest value of each layer; either is NaN where any value is."""
    states = slot.states[:, :rows]
    slot.bounds[0].copy_(states.amin(dim=(1, 2)))
    slot.bounds[1].copy_(states.amax(dim=(1, 2)))


def _page_lock(segment: Segment) -> None:
    """Register the segment with the driver, so that copies into it are asynchronous."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(segment.map))
    status = torch.cuda.cudart().cudaHostRegister(address, len(segment.map), 0)
    if int(status) != 0:
        raise RuntimeError(f"the driver cannot page-lock {len(segment.map)} bytes of shared memory: {status}")
