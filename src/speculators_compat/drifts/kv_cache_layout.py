"""vLLM resolves one memory layout for the KV cache in its engine core, which the generator stands in for."""

from __future__ import annotations

from typing import Any

import wrapt

from ..calls import accepts
from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


class LayoutExecutor(wrapt.ObjectProxy):
    """An executor that settles the layout as soon as the workers' KV cache specs are known.

    The order is the engine core's: specs of all workers, resolve, tell the workers, plan.
    """

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a worker method by name."""
        replies = self.__wrapped__.collective_rpc(method, *args, **kwargs)
        if method == "get_kv_cache_spec":
            _resolve(self.__wrapped__, replies)
        return replies


def _resolve(executor: Any, specs_by_worker: list[dict[str, Any]]) -> None:
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

    specs = [spec for worker in specs_by_worker for spec in worker.values()]
    layout = resolve_kv_cache_layout(executor.vllm_config, executor.get_supported_kv_cache_layouts(), specs)
    arguments = {}
    if accepts(executor.set_kv_cache_layout, "cp_kv_cache_interleave_size"):  # from 0.33 on
        arguments = {"cp_kv_cache_interleave_size": executor.vllm_config.parallel_config.cp_kv_cache_interleave_size}
    executor.set_kv_cache_layout(layout.name, **arguments)


def _proxied(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return LayoutExecutor(wrapped(*args, **kwargs))


def _recorded(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A planned KV cache carries the layout to the workers as well."""
    planned = wrapped(*args, **kwargs)
    planned.kv_cache_layout = kwargs["vllm_config"].cache_config.kv_cache_layout
    return planned


def _unresolved() -> bool:
    return hasattr(from_generator("MultiprocExecutor"), "set_kv_cache_layout")


DRIFT = Drift(
    id="kv_cache_layout",
    title="The KV cache's layout is resolved before it is planned",
    symptom="ValueError: KV cache layout has not been resolved yet",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.29.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.29.0/vllm/v1/engine/core.py#L289",
    probe=_unresolved,
    sites=(
        wrap(f"{GENERATOR}:MultiprocExecutor", _proxied),
        wrap(f"{GENERATOR}:get_kv_cache_config_from_groups", _recorded),
    ),
)
