"""The generator never checks its KV cache against one full prompt, and on a host every rank takes the same memory."""

from __future__ import annotations

import os
from typing import Any

from ..drift import Drift, UsageError, wrap
from ._generator import GENERATOR
from ._memory import accelerator_present

GIB = 1 << 30


def _checked(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    vllm_config, groups = kwargs["vllm_config"], kwargs["kv_cache_groups"]
    budget = kwargs["available_memory"]
    if not accelerator_present():
        budget = min(_host_budget(budget, vllm_config), _most_that_is_ever_used(vllm_config, groups))
    planned = wrapped(*args, **{**kwargs, "available_memory": budget})
    needed = _blocks_of_a_prompt(vllm_config)
    if planned.num_blocks < needed:
        raise UsageError(
            f"The KV cache must hold one prompt of max_model_len: {needed} blocks of "
            f"{vllm_config.cache_config.block_size} tokens.",
            f"{planned.num_blocks} blocks in {budget / GIB:.2f} GiB a rank",
            "Raise gpu_memory_utilization (on a CPU: VLLM_CPU_KVCACHE_SPACE, in GiB) or lower max_model_len.",
        )
    return planned


def _host_budget(budget: int, vllm_config: Any) -> int:
    """Bytes a rank: the user's own setting, or an equal share, since all ranks live in one memory."""
    asked = os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    if asked:
        return int(float(asked) * GIB)
    return int(budget) // int(vllm_config.parallel_config.tensor_parallel_size)


def _blocks_of_a_prompt(vllm_config: Any) -> int:
    block_size = int(vllm_config.cache_config.block_size)
    return -(-int(vllm_config.model_config.max_model_len) // block_size) + 1  # vLLM keeps one null block


def _most_that_is_ever_used(vllm_config: Any, groups: Any) -> int:
    blocks = int(vllm_config.scheduler_config.max_num_seqs) * _blocks_of_a_prompt(vllm_config)
    return blocks * sum(int(group.kv_cache_spec.page_size_bytes) * len(group.layer_names) for group in groups)


DRIFT = Drift(
    id="kv_cache_budget",
    title="The KV cache holds one full prompt, and ranks share a host's memory",
    symptom="no error: the scheduler schedules nothing, rows are missing and the prompts leak into the next call",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/vllm_hidden_states_generator.py#L134",
    silent=True,
    sites=(wrap(f"{GENERATOR}:get_kv_cache_config_from_groups", _checked),),
)
