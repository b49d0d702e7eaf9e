"""What the generator's methods do under the shim; the drifts place these on upstream's class."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..drift import UsageError
from .loop import Engine
from .options import Options, split, using
from .prompts import Prompt, check_layer_ids, read_prompt, read_prompts
from .stream import SourceError, Stream, extract, guarded
from .transport import Layout, Ring

__all__ = ["close", "connect", "construct", "enter", "generate", "leave", "stream"]

log = logging.getLogger("speculators_compat")

GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"
POSITIONAL = (
    "model_path",
    "layer_ids",
    "max_model_len",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "max_num_batched_tokens",
)


def construct(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``__init__``: upstream's signature plus the options; a failure leaves no worker behind."""
    import inspect

    if len(args) > len(POSITIONAL):
        raise TypeError(f"at most {len(POSITIONAL)} positional arguments, {len(args)} given")
    given = dict(zip(POSITIONAL, args, strict=False))
    twice = sorted(given.keys() & kwargs.keys())
    if twice:
        raise TypeError(f"got multiple values for {', '.join(twice)}")
    given |= kwargs
    given["layer_ids"] = check_layer_ids(given.get("layer_ids"))
    own = frozenset(inspect.signature(wrapped).parameters)
    options, upstream = split(given, own)
    instance._compat_options = options
    instance._compat_truncated = 0
    instance._compat_lock = threading.Lock()
    instance._compat_streaming = False
    try:
        with using(options):
            wrapped(**upstream)
    except BaseException:
        close(instance)
        raise


def generate(self: Any, token_ids: Any) -> list[dict[str, Any]]:
    """Hidden states of each prompt, from prefill only.

    Args:
        self: The generator.
        token_ids: List of lists of int, list of 1-D integer tensors, or a 2-D integer tensor [prompts, tokens].

    Returns:
        One dict per prompt, in the caller's order: ``input_ids`` int64 [tokens]; ``hidden_states``, one CPU tensor
        [tokens, hidden] in the model's dtype per layer in the order of ``layer_ids``, the residual stream after that
        decoder layer and before any later norm; ``loss_mask`` None; ``truncated``, the number of tokens cut off.

    Raises:
        UsageError: Bad input (a ``ValueError``), or a KV cache that cannot hold a prompt. The generator stays usable.
        CaptureError: Captured rows do not add up; the generator is closed.
        RuntimeError: The generator is closed, or a worker failed (it is closed then).
    """
    _check_usable(self)
    prompts = read_prompts(token_ids, **_reading(self))
    with _one_call(self):
        _count_truncated(self, prompts)
        finished = dict(_run(self, iter(prompts), size=math.inf, ordered=False, copy=True, seconds=_no_seconds()))
        return [finished[index] for index in range(len(prompts))]


def stream(
    self: Any, token_ids: Iterable[Any], *, window: int = 64, ordered: bool = True, copy: bool = False
) -> Stream:
    """Hidden states of any number of prompts, as they come and in bounded memory.

    Args:
        self: The generator.
        token_ids: Prompts, each a list of int or a 1-D integer tensor; read lazily, in the caller's thread.
        window: Prompts that are read and not in the engine: those from which the next step is packed, and results
            held back for their turn. Those of the three steps in flight come on top.
        ordered: Results in the order of ``token_ids``; otherwise as they finish.
        copy: Every result owns its memory. Otherwise states may lie in the memory that is shared with the worker,
            which is theirs until they are dropped; a caller who keeps many gets copies from then on.

    Returns:
        An iterator (also a context manager, with ``close()``) of dicts as :func:`generate` returns them, with ``index``
        in addition, the prompt's place in ``token_ids``. Until it is exhausted or closed, the generator takes no other
        call.

    Raises:
        UsageError: Bad arguments at once, a bad prompt when it is read; the generator stays usable.
        CaptureError: Captured rows do not add up; the generator is closed.
        RuntimeError: The generator is closed, or a worker failed (it is closed then).
    """
    _check_usable(self)
    if isinstance(token_ids, (str, bytes, Mapping)) or not isinstance(token_ids, Iterable):
        raise UsageError("stream() takes an iterable of prompts.", type(token_ids).__name__, "Tokenize text first.")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise UsageError("window must be a positive number of prompts.", repr(window), "Leave it out for 64.")
    seconds = _no_seconds()
    return Stream(_stream(self, token_ids, window, ordered, copy, seconds), seconds)


def _stream(
    self: Any, token_ids: Iterable[Any], window: int, ordered: bool, copy: bool, seconds: dict[str, float]
) -> Iterator[dict[str, Any]]:
    with _one_call(self):
        self._compat_streaming = True
        try:
            prompts = _prompts(self, token_ids)
            for index, result in _run(self, prompts, size=window, ordered=ordered, copy=copy, seconds=seconds):
                result["index"] = index
                yield result
                del result
        finally:
            self._compat_streaming = False


def _prompts(self: Any, token_ids: Iterable[Any]) -> Iterator[Prompt]:
    reading = _reading(self)
    for index, row in enumerate(guarded(token_ids)):
        prompt = read_prompt(index, row, **reading)
        _count_truncated(self, [prompt])
        yield prompt


def _reading(self: Any) -> dict[str, Any]:
    """How prompts are read for this generator."""
    config = self.vllm_config.model_config
    options: Options = self._compat_options
    return {
        "vocab_size": config.get_vocab_size(),
        "max_tokens": config.max_model_len - 1,
        "overlong": options.overlong,
    }


def _no_seconds() -> dict[str, float]:
    return {"engine": 0.0, "copy": 0.0, "caller": 0.0}


@contextlib.contextmanager
def _one_call(self: Any) -> Iterator[None]:
    """One call at a time: the executor's queues belong to one caller."""
    if not self._compat_lock.acquire(blocking=False):
        if self._compat_streaming:
            raise UsageError(
                "A generator takes one call at a time.",
                "a stream of it that is still open",
                "Exhaust the stream, or close() it, first.",
            )
        self._compat_lock.acquire()
    try:
        _check_usable(self)
        yield
    finally:
        self._compat_lock.release()


def _check_usable(self: Any) -> None:
    """Refuse a generator that cannot run, in words of its own."""
    if not hasattr(self, "_compat_options"):
        raise RuntimeError("this generator was made without the shim; make it after importing speculators_compat")
    if getattr(self, "executor", None) is None:
        raise RuntimeError("this generator is closed; make a new one")
    if getattr(self.executor, "is_failed", False):
        close(self)
        raise RuntimeError("a worker of this generator has died, and it is closed; make a new one")


def _run(self: Any, prompts: Iterator[Prompt], **how: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run prompts; whatever leaves the workers out of step closes the generator."""
    try:
        yield from extract(_engine(self), prompts, **how)
    except (UsageError, GeneratorExit):
        raise  # the workers are in step, nothing is left behind
    except SourceError as error:
        raise error.error from None
    except BaseException as error:
        # Replies of other ranks may still be queued: a further call would read a stale one.
        died = getattr(self.executor, "is_failed", False)
        close(self)
        log.error("the generator is closed after: %s", error)
        if died and not isinstance(error, RuntimeError):
            raise RuntimeError("a worker of this generator has died; make a new one") from error
        raise


def _engine(self: Any) -> Engine:
    scheduler_config = self.vllm_config.scheduler_config
    self._request_counter += 1
    return Engine(
        scheduler=self.scheduler,
        executor=self.executor,
        ring=self._compat_ring,
        request=lambda request_id, token_ids: _request(self, request_id, token_ids),
        abort=upstream().RequestStatus.FINISHED_ABORTED,
        call=f"prefill-{self._request_counter}",
        num_layers=len(self.layer_ids),
        budget=scheduler_config.max_num_batched_tokens,
        max_prompts=scheduler_config.max_num_seqs,
    )


def connect(self: Any) -> None:
    """Share memory with the worker that captures; its name is gone before the first step.

    Raises:
        UsageError: The shared memory cannot hold the states of two steps; the generator is closed.
    """
    model, steps = self.vllm_config.model_config, self.vllm_config.scheduler_config
    layout = Layout(
        layers=len(self.layer_ids),
        rows=steps.max_num_batched_tokens,
        width=model.get_hidden_size(),
        dtype=str(model.dtype).removeprefix("torch."),
        itemsize=model.dtype.itemsize,
    )
    try:
        ring = Ring(layout)
        try:
            self.executor.collective_rpc("_open_transport", args=(ring.segment.name, ring.layout.as_dict()))
        finally:
            ring.segment.unlink()
    except BaseException:
        close(self)
        raise
    self._compat_ring = ring


def close(self: Any) -> None:
    """Stop the workers and free their memory. Closing twice is once."""
    # The attribute goes, rather than becoming None: upstream's __del__ shuts down whatever it finds there.
    executor = self.__dict__.pop("executor", None)
    self.__dict__.pop("_compat_ring", None)
    if executor is not None:
        executor.shutdown()


def enter(self: Any) -> Any:
    """Use the generator as a context manager: it is closed at the end."""
    return self


def leave(self: Any, *exc: object) -> None:
    """End of the ``with`` block."""
    close(self)


def upstream() -> Any:
    """Upstream's module: its names are the ones that drifts adapt, whatever class a user derives from it."""
    return sys.modules[GENERATOR]


def _request(self: Any, request_id: str, token_ids: list[int]) -> Any:
    names = upstream()
    return names.Request(
        request_id=request_id,
        prompt_token_ids=token_ids,
        # One token: vLLM has no request without a sampled token; it is never read.
        sampling_params=names.SamplingParams(max_tokens=1, temperature=0.0),
        pooling_params=None,
        eos_token_id=self.tokenizer.eos_token_id,
        arrival_time=0.0,
    )


def _count_truncated(self: Any, prompts: list[Prompt]) -> None:
    limit = self.vllm_config.model_config.max_model_len - 1
    cut = sum(1 for prompt in prompts if prompt.truncated)
    if cut and not self._compat_truncated:
        log.warning(
            "%d of %d prompts of this call are cut to %d tokens (max_model_len - 1); results say how many tokens were "
            "cut under 'truncated'. This is said once; overlong='error' refuses such prompts.",
            cut,
            len(prompts),
            limit,
        )
    self._compat_truncated += cut
