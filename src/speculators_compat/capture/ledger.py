"""Books of one ``generate`` call: which row of which step is which token of which prompt.

Rows belong to requests, never to positions in a list. The order of rows comes from the runner's own batch of that very
step, the place inside a prompt from the scheduler's own count of computed tokens, and the tokens that the embedding saw
are compared with the prompt. A preempted request is recomputed from its start: the same rows arrive again and are laid
over the first ones. Whatever is missing or does not add up at the end fails the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    done: int = 0


class Ledger:
    """Collects one call's states, a step at a time."""

    def __init__(self, prompts: Mapping[str, Prompt], num_layers: int) -> None:
        self._open = {request_id: _Entry(prompt) for request_id, prompt in prompts.items()}
        self._closed: dict[int, _Entry] = {}
        self._num_layers = num_layers

    @property
    def unfinished(self) -> list[str]:
        """Request ids whose prompt is not complete."""
        return list(self._open)

    def place(self, step: Step, reply: Mapping[str, Any]) -> list[str]:
        """Lay one step's rows into their prompts.

        Args:
            step: What ran.
            reply: Rank 0's ``states`` (one [rows, hidden] CPU tensor per layer), ``finite`` and ``token_ids``.

        Returns:
            Ids of the requests whose prompt is now complete.

        Raises:
            CaptureError: The rows do not add up.
        """
        layers = reply["states"]
        self._check(step, reply)
        row, finished = 0, []
        for request_id in step.order:
            count, start = step.counts[request_id], step.starts[request_id]
            entry = self._open[request_id]
            self._check_tokens(request_id, entry, start, count, reply["token_ids"], row)
            if not entry.states:
                entry.states = [layer.new_empty((len(entry.prompt.token_ids), layer.shape[1])) for layer in layers]
            for store, layer in zip(entry.states, layers, strict=True):
                store[start : start + count] = layer[row : row + count]
            entry.done = start + count
            row += count
            if entry.done == len(entry.prompt.token_ids):
                self._closed[entry.prompt.index] = self._open.pop(request_id)
                finished.append(request_id)
        return finished

    def results(self) -> list[dict[str, Any]]:
        """The call's results in the caller's order.

        Raises:
            CaptureError: A prompt is incomplete.
        """
        import torch

        if self._open:
            raise CaptureError(f"{len(self._open)} prompts are incomplete, first {next(iter(self._open))}")
        return [
            {
                "input_ids": torch.tensor(entry.prompt.token_ids, dtype=torch.long),
                "hidden_states": entry.states,
                "loss_mask": None,
                "truncated": entry.prompt.truncated,
            }
            for _, entry in sorted(self._closed.items())
        ]

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
