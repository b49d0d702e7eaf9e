from types import SimpleNamespace

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts import kv_cache_budget
from speculators_compat.drifts.kv_cache_budget import GIB


@pytest.fixture
def plan(monkeypatch):
    """Plan a cache of 16-token blocks of 1 MiB for prompts of 100 tokens, four at a time."""

    def run(memory: int, ranks: int = 1, accelerator: bool = False) -> int:
        monkeypatch.setattr(kv_cache_budget, "accelerator_present", lambda: accelerator)
        config = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=16),
            model_config=SimpleNamespace(max_model_len=100),
            scheduler_config=SimpleNamespace(max_num_seqs=4),
            parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
        )
        group = SimpleNamespace(kv_cache_spec=SimpleNamespace(page_size_bytes=1 << 18), layer_names=list("abcd"))

        def upstream(*, vllm_config, kv_cache_groups, available_memory):
            return SimpleNamespace(num_blocks=available_memory >> 20)

        arguments = {"vllm_config": config, "kv_cache_groups": [group], "available_memory": memory}
        return kv_cache_budget._checked(upstream, None, (), arguments).num_blocks

    return run


def test_a_cache_below_one_prompt_is_refused_with_the_arithmetic(plan, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    with pytest.raises(UsageError, match=r"8 blocks of 16 tokens. Found: 7 blocks"):
        plan(7 << 20)
    assert plan(8 << 20) == 8


def test_ranks_share_a_hosts_memory(plan, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert plan(80 << 20, ranks=8) == 10


def test_no_more_than_every_running_prompt_needs_is_taken_of_a_host(plan, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert plan(100 * GIB) == 4 * 8


def test_the_users_own_setting_is_a_ranks_share(plan, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "0.01")
    assert plan(100 * GIB, ranks=8) == 10


def test_an_accelerators_budget_is_upstreams(plan):
    assert plan(GIB, accelerator=True) == 1024
