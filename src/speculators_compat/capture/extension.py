"""The worker extension: forward hooks on decoder layers, one step's states at a time.

Under the generator, hooks write into the slots of the transport (``_open_transport``, ``_launch_step``,
``_wait_step``). A worker of a plain ``LLM`` keeps a step's states until they are asked for (``_reset_capture``,
``_take_captured_states``).

vLLM resolves the extension class by its dotted name inside each worker process and mixes it into the worker; importing
this module activates the shim there. The model's own forward runs untouched, so every special step of an architecture
(embedding scale, deep-stack input, sequence-parallel gathers) stays in. The RPC names are those of speculators' own
extension, because the generator's constructor calls them by name.

This module is imported in workers only; it may import torch.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from .. import activation
from .decoder import find_decoder
from .outbox import Outbox
from .transport import Layout

__all__ = ["HiddenStatesWorkerExtension", "check_model"]

log = logging.getLogger("speculators_compat.worker")


def check_model(model: Any) -> list[str]:
    """Look a loaded model over before its states are trusted; drifts wrap this.

    Returns:
        One line for each thing that was mended in the model.
    """
    return []


class _StreamCheck:
    """Compares, once, the last layer's state with the stream that the decoder's final norm works on.

    Most decoders of vLLM return ``(hidden, residual)`` whose sum is the residual stream. In some (Exaone 4, StableLM,
    PhiMoE, Command R) the first element holds the residual already, and a sum would be wrong in silence.
    """

    NORMS = ("norm", "final_layernorm", "final_norm", "norm_f", "ln_f")

    def __init__(self, decoder: Any) -> None:
        self.armed = False
        self.state: torch.Tensor | None = None
        self.failure = ""
        norm = next((getattr(decoder, name) for name in self.NORMS if hasattr(decoder, name)), None)
        if not isinstance(norm, torch.nn.Module):
            log.warning("no final norm found in %s: its states cannot be verified", type(decoder).__name__)
            self.handles = []
            return
        self.handles = [
            decoder.layers[len(decoder.layers) - 1].register_forward_hook(self._last_layer),
            norm.register_forward_hook(self._final_norm, with_kwargs=True),
        ]

    def _last_layer(self, module: Any, args: Any, output: Any) -> None:
        if self.armed:
            self.state = _state(output)

    def _final_norm(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if not self.armed or self.state is None:
            return
        given = [*args, *kwargs.values()]
        # A norm that takes the residual adds it first and returns the sum as the new residual.
        paired = len(given) > 1 and given[1] is not None and isinstance(output, tuple)
        stream = output[1] if paired else given[0]
        error = torch.linalg.vector_norm((self.state - stream).float()) / torch.linalg.vector_norm(stream.float())
        if not bool(error < 0.02):  # bfloat16 rounds at 0.004; a wrong sum is off by more than a tenth
            self.failure = f"relative difference {float(error):.3g}"
        self.remove()

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles, self.state = [], None


class _Capture:
    """Hooks on one worker and what they caught since the last step was taken."""

    def __init__(self, model: Any, layer_ids: list[int]) -> None:
        self.layer_ids = layer_ids
        self.armed = False
        self.outbox: Outbox | None = None
        self.forwards: dict[int, int] = {}
        self.states: dict[int, list[torch.Tensor]] = {}
        self.token_ids: list[torch.Tensor] = []
        decoder, self.path = find_decoder(model)
        self.handles = [decoder.layers[i].register_forward_hook(self._layer_hook(i)) for i in layer_ids]
        self.check = _StreamCheck(decoder)
        embedding = getattr(decoder, "embed_tokens", None)
        if isinstance(embedding, torch.nn.Module):
            self.handles.append(embedding.register_forward_hook(self._embedding_hook))
        else:
            log.warning("no embed_tokens in %s: token ids are not compared with the prompts", type(decoder).__name__)

    def reset(self) -> None:
        self.forwards.clear()
        self.states.clear()
        self.token_ids.clear()
        self.armed = self.check.armed = True

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.check.remove()

    def _layer_hook(self, layer_id: int) -> Any:
        position = self.layer_ids.index(layer_id)

        def hook(module: Any, args: Any, output: Any) -> None:
            if not self.armed:
                return
            self.forwards[layer_id] = self.forwards.get(layer_id, 0) + 1
            if self.outbox is None:
                self.states.setdefault(layer_id, []).append(_state(output))
            else:
                self.outbox.write(position, output)

        return hook

    def _embedding_hook(self, module: Any, args: Any, output: Any) -> None:
        if not self.armed or not args:
            return
        # vLLM reuses its input buffer for the next step.
        if self.outbox is None:
            self.token_ids.append(args[0].clone())
        else:
            self.outbox.write_ids(args[0])

    def begin(self, outbox: Outbox, number: int, rows: int) -> None:
        """Catch the next forward pass in a slot of the transport."""
        self.reset()
        self.outbox = outbox
        outbox.begin(number, rows)

    def finish(self, outbox: Outbox) -> bool:
        """Stop catching; returns whether the slot will hold the step's token ids."""
        self.armed, self.outbox = False, None
        self._check()
        return outbox.finish()

    def _check(self) -> None:
        if self.check.failure:
            raise RuntimeError(
                "the sum of what a decoder layer returns is not the residual stream in this model "
                f"({self.check.failure} before the final norm); its states cannot be captured yet"
            )
        forwards = {layer_id: self.forwards.get(layer_id, 0) for layer_id in self.layer_ids}
        self.forwards.clear()
        if any(count != 1 for count in forwards.values()):
            raise RuntimeError(f"each captured layer must run exactly once in a step; ran {forwards} times")

    def take(self, num_tokens: int) -> dict[str, Any]:
        """Hand out and forget the states of the one forward pass since the last call."""
        states, token_ids = self.states, self.token_ids
        self.states, self.token_ids = {}, []
        self._check()
        rows = [states[layer_id][0] for layer_id in self.layer_ids]
        # Rows past num_tokens are padding of the batch, never a prompt's token.
        rows = [layer[:num_tokens] for layer in rows]
        ids = token_ids[0][:num_tokens].cpu() if len(token_ids) == 1 else None
        return {
            "finite": [bool(torch.isfinite(layer).all()) for layer in rows],
            "states": [layer.cpu() for layer in rows],
            "token_ids": ids,
        }


def _state(output: Any) -> torch.Tensor:
    """The residual stream after a decoder layer, as memory of its own.

    A layer returns ``(hidden, residual)``, whose sum is the stream, or the stream itself. vLLM's fused add-norm
    overwrites both tensors in the next layer, hence the new memory.
    """
    if isinstance(output, tuple):
        hidden, residual = output[0], output[1] if len(output) > 1 else None
        return hidden.clone() if residual is None else hidden + residual
    return output.clone()


class _Inputs:
    """Keeps a step from being prepared while the one before may still read its inputs.

    The runner fills the same page-locked buffers for every step and copies them without waiting; vLLM's own loop waits
    for each step's sampled tokens, ours launches ahead. A step's inputs have been read when its first layer starts.
    """

    def __init__(self, decoder: Any, device: torch.device) -> None:
        self._read = torch.cuda.Event(blocking=True) if device.type == "cuda" else None
        if self._read is not None:
            decoder.layers[0].register_forward_pre_hook(self._first_layer)

    def _first_layer(self, module: Any, args: Any) -> None:
        if self._read is not None:
            self._read.record()

    def wait(self) -> None:
        """Block until the last launched step has read its inputs."""
        if self._read is not None:
            self._read.synchronize()


def _complete(worker: Any, output: Any) -> list[str]:
    """Bring a launched step to its end without its sampled tokens.

    Returns:
        Request ids in the order of the step's rows.
    """
    if output is not None:  # vLLM 0.11.0 samples inside execute_model
        return list(output.req_ids)
    runner = worker.model_runner
    pending = runner.execute_model_state
    parts = [getattr(pending, "input_batch", None), *(pending if isinstance(pending, tuple) else ())]
    batch = next((part for part in parts if hasattr(part, "req_ids")), None)
    if batch is None:
        # The first runner keeps its batch itself, and a request's progress comes from the scheduler: what the sampler
        # would need can be dropped.
        runner.execute_model_state = None
        return list(runner.input_batch.req_ids)
    # Model runner V2 counts a request's computed tokens on the device, after sampling; its reply is not waited for.
    order = list(batch.req_ids)
    worker.sample_tokens(None)
    return order


class HiddenStatesWorkerExtension:
    """Methods that vLLM mixes into its worker; called by name through ``collective_rpc``.

    Only tensor-parallel rank 0 captures: after each layer all ranks hold the same rows.
    """

    model_runner: Any

    def _setup_hidden_states_capture(self, layer_ids: list[int]) -> dict[str, Any]:
        """Place the hooks.

        Args:
            layer_ids: speculators' ids; id k is the state after decoder layer k, before any later norm.

        Returns:
            What this worker found: tensor-parallel rank, the shim of this process, decoder path, mended things, drift
            states. ``speculators-compat doctor --workers`` shows it.
        """
        from vllm.distributed import get_tp_group

        from .. import __version__

        model = self.model_runner.model
        earlier = getattr(self, "_compat_capture", None)
        if earlier is not None:
            earlier.remove()
        mended = check_model(model)
        rank = int(get_tp_group().rank_in_group)
        self._compat_capture = _Capture(model, list(layer_ids)) if rank == 0 else None
        for line in mended:
            log.warning(line)
        return {
            "rank": rank,
            "shim": {"version": __version__, "active": activation.is_active(), "pid": os.getpid()},
            "decoder": find_decoder(model)[1],
            "mended": mended,
            "drifts": [outcome.as_dict() for outcome in activation.outcomes()],
        }

    def _open_transport(self, name: str, layout: dict[str, Any]) -> None:
        """Map the ring of slots; rank 0 will write into it.

        Args:
            name: Of the shared segment.
            layout: Fields of :class:`~speculators_compat.capture.transport.Layout`.
        """
        device = next(self.model_runner.model.parameters()).device
        self._compat_inputs = _Inputs(find_decoder(self.model_runner.model)[0], device)
        self._compat_outbox = Outbox(name, Layout(**layout), device) if self._compat_capture is not None else None

    def _launch_step(self, scheduled: Any, number: int) -> dict[str, Any] | None:
        """Run one step as far as its launch; on an accelerator it computes on after the reply.

        Args:
            scheduled: The scheduler's output.
            number: Slot for its states.

        Returns:
            On rank 0 ``req_ids`` in the order of rows, and ``watched``, whether the slot will hold the token ids that
            the embedding saw; None on the other ranks.
        """
        self._compat_inputs.wait()
        capture, outbox = self._compat_capture, self._compat_outbox
        if capture is None or outbox is None:
            _complete(self, self.execute_model(scheduled))  # type: ignore[attr-defined]
            return None
        capture.begin(outbox, number, scheduled.total_num_scheduled_tokens)
        order = _complete(self, self.execute_model(scheduled))  # type: ignore[attr-defined]
        return {"req_ids": order, "watched": capture.finish(outbox)}

    def _wait_step(self, number: int) -> int | None:
        """Wait until slot ``number`` is complete; rank 0 answers with the number, the others at once with None."""
        if self._compat_outbox is None:
            return None
        self._compat_outbox.wait(number)
        return number

    def _reset_capture(self) -> None:
        """Forget what was caught and start catching; before the first call nothing is caught (warm-up)."""
        if self._compat_capture is not None:
            self._compat_capture.reset()

    def _take_captured_states(self, num_tokens: int) -> dict[str, Any] | None:
        """States of the last step, on rank 0; None on the other ranks.

        Args:
            num_tokens: Rows that the scheduler asked for in that step.

        Returns:
            ``states``: one CPU tensor [num_tokens, hidden] per layer, in the order of ``layer_ids``, in the model's
            dtype; ``finite``: one bool per layer; ``token_ids``: int tensor [num_tokens] as the embedding saw them, or
            None where the decoder's embedding cannot be watched.
        """
        return None if self._compat_capture is None else self._compat_capture.take(num_tokens)


# At the end, when ``check_model`` exists: a spawned worker starts from nothing, and this import activates the shim.
activation.activate()
