"""vLLM 0.11.0 answers an RPC with a future only where it runs several batches at a time; our loop launches ahead."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import Any

import wrapt

from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


class FutureExecutor(wrapt.ObjectProxy):
    """An executor whose ``collective_rpc`` takes ``non_block``; the future it returns is complete."""

    def collective_rpc(self, method: Any, *args: Any, non_block: bool = False, **kwargs: Any) -> Any:
        """Call a worker method by name."""
        if not non_block:
            return self.__wrapped__.collective_rpc(method, *args, **kwargs)
        future: Future[Any] = Future()
        future.set_result(self.__wrapped__.collective_rpc(method, *args, **kwargs))
        return future


def _blocks() -> bool:
    executor = from_generator("MultiprocExecutor")
    return not hasattr(sys.modules[executor.__module__], "FutureWrapper")


def _proxied(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return FutureExecutor(wrapped(*args, **kwargs))


DRIFT = Drift(
    id="rpc_futures",
    title="RPCs that are not waited for, on vLLM 0.11.0 too",
    symptom="RuntimeError: non_block can only be used when max_concurrent_batches > 1",
    call_site="data_generation/vllm_hidden_states_generator.py:generate",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until="0.11.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/executor/multiproc_executor.py#L267",
    probe=_blocks,
    sites=(wrap(f"{GENERATOR}:MultiprocExecutor", _proxied),),
)
