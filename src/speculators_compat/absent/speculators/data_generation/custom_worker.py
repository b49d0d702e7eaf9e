"""The worker extension that speculators 0.5 removed, with the calls of 0.4; vLLM imports it in each worker, by name.

The generator's own workers use ``speculators_compat.capture.extension``. This class is for engines that name
upstream's: it keeps whole calls where that one hands out single steps. In a spawned worker the entry point of
``vllm.general_plugins`` has the drift ``removed_generator`` supply this module.
"""

from __future__ import annotations

from typing import Any

import torch

from speculators_compat.capture import extension

__all__ = ["HiddenStatesWorkerExtension"]


class HiddenStatesWorkerExtension(extension.HiddenStatesWorkerExtension):
    """Captures layers over several steps and hands their states out by request.

    Before each step the caller says how many rows of each request to keep; the order of rows is that of the runner's
    own batch in that step.
    """

    def _setup_hidden_states_capture(self, layer_ids: list[int]) -> dict[str, Any]:
        """Place the hooks; see the base class."""
        found = super()._setup_hidden_states_capture(layer_ids)
        self._forget()
        return found

    def _reset_capture(self) -> None:
        """Forget what was caught and start catching."""
        super()._reset_capture()
        self._forget()

    def _forget(self) -> None:
        self._metadata: dict[str, int] | None = None
        self._rows: list[list[tuple[str, int]]] = []
        self._parts: list[list[torch.Tensor]] = []

    def _set_request_metadata(self, request_metadata: dict[str, int]) -> None:
        """Say what the next step is to keep.

        Args:
            request_metadata: Request id to the number of its prompt tokens in that step.
        """
        self._collect()
        self._metadata = dict(request_metadata)

    def _get_captured_states(self) -> dict[str, list[torch.Tensor]] | None:
        """The states since the last reset.

        Returns:
            Request id to one CPU tensor [tokens, hidden] per layer, in the order of ``layer_ids``; None where nothing
            was captured, and on every rank but the first.
        """
        self._collect()
        rows, parts, self._rows, self._parts = self._rows, self._parts, [], []
        if not parts:
            return None
        states: dict[str, list[list[torch.Tensor]]] = {}
        for order, layers in zip(rows, parts, strict=True):
            start = 0
            for request_id, count in order:
                found = states.setdefault(request_id, [[] for _ in layers])
                for kept, layer in zip(found, layers, strict=True):
                    kept.append(layer[start : start + count])
                start += count
        return {request_id: [torch.cat(kept) for kept in found] for request_id, found in states.items()}

    def _collect(self) -> None:
        """Take the rows of the step that ran since the last metadata."""
        metadata, self._metadata = self._metadata, None
        if not metadata or self._compat_capture is None or not self._compat_capture.states:
            return
        batch = getattr(self.model_runner, "input_batch", None)
        order = getattr(batch, "req_id_to_index", None)
        if order is None:
            raise RuntimeError(
                "this runner does not tell the order of its batch to a worker extension; "
                "use speculators.data_generation.VllmHiddenStatesGenerator, which reads it from each step's output"
            )
        wanted = sum(metadata.values())
        ran = next(iter(self._compat_capture.states.values()))[-1].shape[0]
        if ran != wanted:
            # Whose the other rows are is known to nobody here.
            raise RuntimeError(f"a step ran {ran} tokens, and the metadata of that step names {wanted} of them")
        self._rows.append(sorted(metadata.items(), key=lambda item: order[item[0]]))
        self._parts.append(self._compat_capture.take(wanted)["states"])
