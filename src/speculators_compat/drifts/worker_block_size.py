"""A block size that the caller names pins vLLM to it: backends that cannot use it fail or are passed over.

Left out, each worker settles it for its attention backend once the model is loaded, and the parent reads it off the KV
cache specs, as the engine core does.
"""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


def _unpinned(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped(*args, **{name: value for name, value in kwargs.items() if name != "block_size"})


def _read_back(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sizes = [int(group.kv_cache_spec.block_size) for group in kwargs["kv_cache_groups"]]
    kwargs["vllm_config"].cache_config.block_size = min(sizes)
    return wrapped(*args, **kwargs)


def _scheduled(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "block_size" in kwargs:  # 0.4 passes the constant that it had asked for
        kwargs = {**kwargs, "block_size": kwargs["vllm_config"].cache_config.block_size}
    return wrapped(*args, **kwargs)


def _pins() -> bool:
    return hasattr(from_generator("CacheConfig"), "user_specified_block_size")


DRIFT = Drift(
    id="worker_block_size",
    title="The block size is the one that the workers' attention backend wants",
    symptom="ValueError: No common block size for 16",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.18.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.18.0/vllm/config/cache.py#L39",
    probe=_pins,
    # Around kv_cache_budget and scheduler_block_size, which read cache_config.block_size: drifts apply in the order of
    # their ids.
    sites=(
        wrap(f"{GENERATOR}:CacheConfig", _unpinned),
        wrap(f"{GENERATOR}:get_kv_cache_config_from_groups", _read_back),
        wrap(f"{GENERATOR}:Scheduler", _scheduled),
    ),
)
