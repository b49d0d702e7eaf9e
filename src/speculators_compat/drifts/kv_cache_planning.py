"""vLLM 0.33 moved the planning of the KV cache out of ``kv_cache_utils``, from which speculators imports it by name."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..drift import Drift, Site, supply

OLD = "vllm.v1.core.kv_cache_utils"
NEW = "vllm.v1.core.kv_cache_planning"
NAMES = ("_get_kv_cache_groups_uniform_spec", "get_kv_cache_config_from_groups", "unify_hybrid_kv_cache_specs")


def _moved() -> bool:
    return not any(hasattr(sys.modules[OLD], name) for name in NAMES)


def _under_the_old_name(name: str) -> Site:
    def find(missing: Any) -> Any:
        return getattr(importlib.import_module(NEW), name)

    return supply(f"{OLD}:{name}", find)


DRIFT = Drift(
    id="kv_cache_planning",
    title="The functions that plan the KV cache are found where they were",
    symptom="ImportError: cannot import name '_get_kv_cache_groups_uniform_spec' from 'vllm.v1.core.kv_cache_utils'",
    call_site="data_generation/vllm_hidden_states_generator.py (import)",
    speculators=">=0.3.0,<0.5",
    since="0.33.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/core/kv_cache_planning.py",
    process="both",
    probe=_moved,
    sites=tuple(_under_the_old_name(name) for name in NAMES),
)
