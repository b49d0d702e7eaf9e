"""Up to vLLM 0.11.2 get_kv_cache_config_from_groups requires ``kv_cache_specs``; speculators 0.4 does not pass it."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR, takes


def _with_specs(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "kv_cache_specs" not in kwargs:
        # The groups were made of those specs just before: each layer is in one group.
        groups = kwargs["kv_cache_groups"]
        kwargs = {**kwargs, "kv_cache_specs": {name: g.kv_cache_spec for g in groups for name in g.layer_names}}
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="kv_cache_specs",
    title="kv_cache_specs is passed where it is still required",
    symptom="TypeError: get_kv_cache_config_from_groups() missing 1 required positional argument: 'kv_cache_specs'",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.4.0,<0.5",
    since="0.11.0",
    until="0.12.0",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.2/vllm/v1/core/kv_cache_utils.py",
    probe=takes("get_kv_cache_config_from_groups", "kv_cache_specs"),
    sites=(wrap(f"{GENERATOR}:get_kv_cache_config_from_groups", _with_specs),),
)
