"""What the generator's methods do under the shim; the drifts place these on upstream's class."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

from .ledger import CaptureError
from .loop import prefill
from .options import Options, split, using
from .prompts import check_layer_ids, read_prompts

__all__ = ["close", "construct", "enter", "generate", "leave"]

log = logging.getLogger("speculators_compat")

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

    given = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
    if len(args) > len(POSITIONAL):
        raise TypeError(f"at most {len(POSITIONAL)} positional arguments, {len(args)} given")
    check_layer_ids(given.get("layer_ids"))
    own = frozenset(inspect.signature(wrapped).parameters)
    options, upstream = split(given, own)
    instance._compat_options = options
    instance._compat_truncated = 0
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
    if getattr(self, "executor", None) is None:
        raise RuntimeError("this generator is closed; make a new one")
    options: Options = self._compat_options
    config = self.vllm_config.model_config
    prompts = read_prompts(
        token_ids,
        vocab_size=config.get_vocab_size(),
        max_tokens=config.max_model_len - 1,
        overlong=options.overlong,
    )
    _count_truncated(self, prompts, config.max_model_len - 1)
    by_id = {f"req_{self._request_counter}_{prompt.index}": prompt for prompt in prompts}
    self._request_counter += 1
    requests = {request_id: _request(self, request_id, prompt.token_ids) for request_id, prompt in by_id.items()}
    names = _module(self)
    engine = SimpleNamespace(
        scheduler=self.scheduler, executor=self.executor, abort=names.RequestStatus.FINISHED_ABORTED
    )
    try:
        return prefill(engine, requests, by_id, len(self.layer_ids)).results()
    except ValueError:
        raise  # bad input or a KV cache that is too small: the workers are in step, nothing is left behind
    except BaseException as error:
        # Replies of other ranks may still be queued: a further call would read a stale one.
        close(self)
        if isinstance(error, (RuntimeError, CaptureError)):
            log.error("the generator is closed after: %s", error)
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


def _module(self: Any) -> Any:
    """The module that defined upstream's class: its names are the ones that drifts adapt."""
    import sys

    for base in type(self).__mro__:
        module = sys.modules.get(base.__module__)
        if module is not None and hasattr(module, "MultiprocExecutor"):
            return module
    raise RuntimeError(f"{type(self).__name__} does not come from speculators' generator")


def _request(self: Any, request_id: str, token_ids: list[int]) -> Any:
    names = _module(self)
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
