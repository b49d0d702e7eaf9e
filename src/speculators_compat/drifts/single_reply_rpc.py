"""``collective_rpc(..., unique_reply_rank=r)`` returns the reply itself; speculators 0.3.0 expects a list of one."""

from __future__ import annotations

from typing import Any

import wrapt

from ..drift import Drift, wrap
from ._generator import GENERATOR


class ListReplyExecutor(wrapt.ObjectProxy):
    """An executor whose ``collective_rpc`` always answers with a list, as it did up to vLLM 0.11.0."""

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a worker method by name; one reply per answering rank."""
        replies = self.__wrapped__.collective_rpc(method, *args, **kwargs)
        if kwargs.get("unique_reply_rank") is None:
            return replies
        return [replies]


def _proxied(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return ListReplyExecutor(wrapped(*args, **kwargs))


DRIFT = Drift(
    id="single_reply_rpc",
    title="A single RPC reply comes as the list that 0.3.0 expects",
    symptom="RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
    call_site="data_generation/vllm_hidden_states_generator.py:generate",
    speculators=">=0.3.0,<0.4",
    # The return shape shows in no signature, so the release range decides.
    since="0.11.1",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/v1/executor/multiproc_executor.py#L346",
    sites=(wrap(f"{GENERATOR}:MultiprocExecutor", _proxied),),
)
