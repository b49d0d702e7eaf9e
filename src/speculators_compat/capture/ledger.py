"""Books of the prompts in work: which row of which step is which token of which prompt.

Rows belong to requests, never to positions in a list. The order of rows comes from the runner's own batch of that very
step, the place inside a prompt from the scheduler's own count of computed tokens, and the tokens that the embedding saw
are compared with the prompt. A preempted request is recomputed from its start: the same rows arrive again and are laid
over the first ones. Whatever is missing or does not add up at the end fails the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .prompts import Prompt

__all__ = ["CaptureError", "Ledger", "Step"]


class CaptureError(RuntimeError):
    """Captured rows do not add up; nothing of the call is returned."""


@dataclass(frozen=True)
class Step:
    """One forward pass.

    Attributes:
        order: Request ids in the order of their rows, as the runner reports them.
        counts: Rows of each request.
        starts: Position in its prompt of each request's first row.
    """

    order: Sequence[str]
    counts: Mapping[str, int]
    starts: Mapping[str, int]


@dataclass
class _Entry:
    prompt: Prompt
    states: list[Any] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)
    done: int = 0


class Ledger:
    """Collects prompts' states, a step at a time.

    Args:
        num_layers: Captured layers.
        submit: Runs ``copy(*args)``, now or later, and returns a future of it.
    """

    def __init__(self, num_layers: int, submit: Callable[..., Any]) -> None:
        self._open: dict[str, _Entry] = {}
        self._closed: dict[str, _Entry] = {}
        self._num_layers, self._submit = num_layers, submit

    def add(self, request_id: str, prompt: Prompt) -> None:
        """Expect the rows of a prompt."""
        self._open[request_id] = _Entry(prompt)

    def clear(self) -> None:
        """Forget every prompt and its states: a traceback that a caller keeps must not keep slots of the transport."""
        self._open.clear()
        self._closed.clear()

    def place(self, step: Step, reply: Mapping[str, Any]) -> list[str]:
        """Lay one step's rows into their prompts.

        Args:
            step: What ran.
            reply: Rank 0's ``states`` (one [rows, hidden] CPU tensor per layer), ``finite`` (a bool per layer),
                ``token_ids`` (int64 [rows] or None) and, if prompts may keep the step's own memory, ``lend``:
                ``lend(layer, first, count)`` gives rows as a tensor of their own storage.

        Returns:
            Ids of the requests whose prompt is now complete.

        Raises:
            CaptureError: The rows do not add up.
        """
        self._check(step, reply)
        row, finished = 0, []
        for request_id in step.order:
            count, start = step.counts[request_id], step.starts[request_id]
            entry = self._open[request_id]
            self._check_tokens(request_id, entry, start, count, reply["token_ids"], row)
            self._store(entry, reply, start, count, row)
            entry.done = start + count
            row += count
            if entry.done == len(entry.prompt.token_ids):
                self._closed[request_id] = self._open.pop(request_id)
                finished.append(request_id)
        return finished

    def _store(self, entry: _Entry, reply: Mapping[str, Any], start: int, count: int, row: int) -> None:
        layers, lend = reply["states"], reply.get("lend")
        if count == len(entry.prompt.token_ids) and lend is not None:
            entry.states = [lend(layer, row, count) for layer in range(len(layers))]
            return
        if not entry.states:
            entry.states = [layer.new_empty((len(entry.prompt.token_ids), layer.shape[1])) for layer in layers]
        rows = [layer[row : row + count] for layer in layers]
        entry.copies.append(self._submit(_copy, [state[start : start + count] for state in entry.states], rows))

    def take(self, request_id: str) -> dict[str, Any]:
        """Hand out and forget a complete prompt.

        Returns:
            Its result, as :func:`~speculators_compat.capture.generator.generate` describes it.
        """
        import torch

        entry = self._closed.pop(request_id)
        for copy in entry.copies:
            copy.result()
        return {
            "input_ids": torch.tensor(entry.prompt.token_ids, dtype=torch.long),
            "hidden_states": entry.states,
            "loss_mask": None,
            "truncated": entry.prompt.truncated,
        }

    def _check(self, step: Step, reply: Mapping[str, Any]) -> None:
        rows = sum(step.counts.values())
        if sorted(step.order) != sorted(step.counts):
            raise CaptureError(
                f"the runner's batch {sorted(step.order)} is not the scheduled one {sorted(step.counts)}"
            )
        if len(reply["states"]) != self._num_layers:
            raise CaptureError(f"{self._num_layers} layers were asked for, {len(reply['states'])} captured")
        for position, layer in enumerate(reply["states"]):
            if layer.shape[0] != rows:
                raise CaptureError(f"layer number {position} has {layer.shape[0]} rows, {rows} tokens were scheduled")
            if not reply["finite"][position]:
                raise CaptureError(
                    f"layer number {position} has infinite or NaN states in a step of {list(step.order)[:3]}...; "
                    "the checkpoint or the dtype is at fault (float16 overflows in many models)"
                )
        unknown = [request_id for request_id in step.order if request_id not in self._open]
        if unknown:
            raise CaptureError(f"rows arrived for {unknown}, which is not waiting for any")

    def _check_tokens(self, request_id: str, entry: _Entry, start: int, count: int, token_ids: Any, row: int) -> None:
        if start > entry.done:
            raise CaptureError(f"{request_id}: tokens {entry.done} to {start} never ran (a cached prefix?)")
        if start + count > len(entry.prompt.token_ids):
            raise CaptureError(f"{request_id}: {start + count} tokens ran, the prompt has fewer")
        if token_ids is None:
            return
        if token_ids[row : row + count].tolist() != entry.prompt.token_ids[start : start + count]:
            raise CaptureError(
                f"{request_id}: the rows at {row} hold other tokens than positions {start} to {start + count} of its "
                "prompt; the order of rows in the batch is not what the runner reported"
            )


def _copy(targets: list[Any], sources: list[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
