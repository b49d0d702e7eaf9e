"""vLLM's get_kv_cache_config_from_groups no longer takes ``kv_cache_specs``; speculators 0.3.0 passes it."""

from __future__ import annotations

from ..calls import drop_unknown
from ..drift import Drift, wrap
from ._generator import GENERATOR, lacks

DRIFT = Drift(
    id="kv_cache_config_arguments",
    title="kv_cache_specs is not passed where it is no longer taken",
    symptom="TypeError: get_kv_cache_config_from_groups() got an unexpected keyword argument 'kv_cache_specs'",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.4",
    since="0.12.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.12.0/vllm/v1/core/kv_cache_utils.py#L1050",
    probe=lacks("get_kv_cache_config_from_groups", "kv_cache_specs"),
    sites=(wrap(f"{GENERATOR}:get_kv_cache_config_from_groups", drop_unknown("kv_cache_specs")),),
)
