"""What the generator's methods do under the shim; the drifts place these on upstream's class."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

from ..drift import UsageError
from .loop import prefill
from .options import Options, split, using
from .prompts import check_layer_ids, read_prompts

__all__ = ["close", "construct", "enter", "generate", "leave"]

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
    options: Options = self._compat_options
    config = self.vllm_config.model_config
    prompts = read_prompts(
        token_ids,
        vocab_size=config.get_vocab_size(),
        max_tokens=config.max_model_len - 1,
        overlong=options.overlong,
    )
    with self._compat_lock:  # one call at a time: the executor's queues belong to one caller
        _check_usable(self)
        _count_truncated(self, prompts, config.max_model_len - 1)
        return _run(self, prompts)


def _check_usable(self: Any) -> None:
    """Refuse a generator that cannot run, in words of its own."""
    if not hasattr(self, "_compat_options"):
        raise RuntimeError("this generator was made without the shim; make it after importing speculators_compat")
    if getattr(self, "executor", None) is None:
        raise RuntimeError("this generator is closed; make a new one")
    if getattr(self.executor, "is_failed", False):
        close(self)
        raise RuntimeError("a worker of this generator has died, and it is closed; make a new one")


def _run(self: Any, prompts: list[Any]) -> list[dict[str, Any]]:
    by_id = {f"prefill-{self._request_counter}-{prompt.index}": prompt for prompt in prompts}
    self._request_counter += 1
    requests = {request_id: _request(self, request_id, prompt.token_ids) for request_id, prompt in by_id.items()}
    abort = upstream().RequestStatus.FINISHED_ABORTED
    engine = SimpleNamespace(scheduler=self.scheduler, executor=self.executor, abort=abort)
    try:
        return prefill(engine, requests, by_id, len(self.layer_ids)).results()
    except UsageError:
        raise  # a KV cache that is too small: the workers are in step, nothing is left behind
    except BaseException as error:
        # Replies of other ranks may still be queued: a further call would read a stale one.
        died = getattr(self.executor, "is_failed", False)
        close(self)
        log.error("the generator is closed after: %s", error)
        if died and not isinstance(error, RuntimeError):
            raise RuntimeError("a worker of this generator has died; make a new one") from error
        raise


def close(self: Any) -> None:
    """Stop the workers and free their memory. Closing twice is once."""
    # The attribute goes, rather than becoming None: upstream's __del__ shuts down whatever it finds there.
    executor = self.__dict__.pop("executor", None)
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


def _count_truncated(self: Any, prompts: list[Any], limit: int) -> None:
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
