"""Prefix caching became vLLM's default; requests carry no block hashes, and a cached prefix never runs."""

from __future__ import annotations

from ..calls import add_default, default_of
from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


def _on_by_default() -> bool:
    return default_of(from_generator("CacheConfig"), "enable_prefix_caching") is True


DRIFT = Drift(
    id="prefix_caching",
    title="Prefix caching is off: a cached prefix would never run",
    symptom="AssertionError in vllm/v1/core/block_pool.py:cache_full_blocks for a prompt of one block or more",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.4",
    since="0.12.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.12.0/vllm/config/cache.py#L76",
    probe=_on_by_default,
    sites=(wrap(f"{GENERATOR}:CacheConfig", add_default("enable_prefix_caching", False)),),
)
