"""The silent faults of the old generator, each on a real engine: nothing is lost, mixed up or leaked."""

from __future__ import annotations

import logging

import pytest
import torch

from speculators_compat import UsageError
from speculators_compat.drifts import kv_cache_budget
from tests.e2e.conftest import MAX_LEN, start

pytestmark = pytest.mark.engine

TOLERANCE = 2e-5
llama_alone = pytest.mark.parametrize("engine", [("llama", 1)], indirect=True, ids=["llama-tp1"])


def llama(test):
    """On the shared engine: beside every pair of the matrix too."""
    return pytest.mark.cell(llama_alone(test))


@llama
def test_results_are_in_input_order_past_ten_and_past_thirty_two_prompts(engine):
    """0.4 emits request ids in string order (wrong from 11 on) and never schedules the 33rd prompt."""
    prompts = [[i + 1, *range(1, 2 + i % 5)] for i in range(75)]
    results = engine.generator.generate(prompts)
    assert [result["input_ids"][0].item() for result in results] == [i + 1 for i in range(75)]
    assert engine.worst_error(prompts, results) <= TOLERANCE


@llama
def test_layers_come_in_the_callers_order(engine):
    assert engine.layer_ids == [3, 0, 5, 1], "not ascending, or the test shows nothing"
    prompts = engine.prompts(2, seed=8)
    assert engine.worst_error(prompts, engine.generator.generate(prompts)) <= TOLERANCE
    assert engine.generator.layer_ids == [3, 0, 5, 1]


@llama
def test_the_same_prompts_again_give_the_same_states(engine):
    """Prefix caching would leave out rows of the second call."""
    prompts = engine.prompts(7, seed=4)
    first, second = engine.generator.generate(prompts), engine.generator.generate(prompts)
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a["hidden_states"], b["hidden_states"], strict=True):
            assert x.shape == y.shape
            assert torch.allclose(x, y, rtol=1e-4, atol=1e-4)


@llama
def test_prompts_that_share_a_prefix(engine):
    stem = engine.prompts(2, seed=6)[1][:200]
    prompts = [stem, [*stem, 5, 6, 7], stem[:50], stem]
    assert engine.worst_error(prompts, engine.generator.generate(prompts)) <= TOLERANCE


@llama
def test_long_prompts_are_cut_as_upstream_cuts_them_and_said(engine, caplog):
    long = engine.prompts(2, seed=2)[1] * 2
    engine.generator._compat_truncated = 0
    with caplog.at_level(logging.WARNING, logger="speculators_compat"):
        for _ in range(2):
            whole, cut = engine.generator.generate([[1, 2, 3], long])
    assert (whole["truncated"], cut["truncated"]) == (0, len(long) - (MAX_LEN - 1))
    assert cut["input_ids"].tolist() == long[: MAX_LEN - 1]
    assert cut["hidden_states"][0].shape[0] == MAX_LEN - 1
    said = [r.getMessage() for r in caplog.records if "are cut to" in r.getMessage()]
    assert len(said) == 1
    assert f"cut to {MAX_LEN - 1} tokens" in said[0]


@llama
@pytest.mark.parametrize("batch", [[], [[1], []], [[-1]], [[10**6]], [[1.5]], [["a"]], torch.ones(2, 2)], ids=repr)
def test_bad_input_leaves_the_engine_alone(engine, batch):
    counter = engine.generator._request_counter
    with pytest.raises(UsageError):
        engine.generator.generate(batch)
    assert engine.generator._request_counter == counter, "the engine was touched"
    prompts = engine.prompts(3, seed=11)
    assert engine.worst_error(prompts, engine.generator.generate(prompts)) <= TOLERANCE


@llama
def test_nothing_stays_behind_in_scheduler_or_workers(engine):
    engine.generator.generate(engine.prompts(40, seed=12))
    scheduler = engine.generator.scheduler
    assert not scheduler.running
    assert not scheduler.waiting
    assert not scheduler.requests
    assert not scheduler.finished_req_ids, "the workers were not told which requests ended"


@llama
def test_a_kv_cache_that_is_full_is_one_error_and_the_next_call_is_right(engine):
    pool = engine.generator.scheduler.kv_cache_manager.block_pool
    needed = _blocks_of_a_prompt(engine.generator)
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - min(3, needed - 2))
    with pytest.raises(UsageError, match=rf"KV cache must hold a whole prompt: 299 tokens need {needed} blocks"):
        engine.generator.generate(engine.prompts(4, seed=13))
    pool.free_blocks(taken)
    prompts = engine.prompts(7, seed=14)
    assert engine.worst_error(prompts, engine.generator.generate(prompts)) <= TOLERANCE


@llama
def test_preempted_prompts_keep_their_rows(engine, models, monkeypatch):
    """A KV cache of little more than one prompt: running prompts are thrown out and computed again."""
    size = _block_size(engine.generator)
    block = 2 * size * _kv_width(engine.generator) * 4
    blocks = max(24 * 16 // size, _blocks_of_a_prompt(engine.generator) + 1)
    monkeypatch.setattr(kv_cache_budget, "_host_budget", lambda *_: 6 * block * blocks)
    small = start("llama", engine.directory, engine.layer_ids)
    try:
        preempted = []
        scheduler = small.generator.scheduler
        original = scheduler.schedule

        def watching():
            step = original()
            preempted.extend(request for request in scheduler.waiting if request.status.name == "PREEMPTED")
            return step

        scheduler.schedule = watching
        # Eight prompts advance side by side, 16 tokens each a step: the cache runs out while all are half computed.
        scheduler.scheduler_config.long_prefill_token_threshold = 16
        prompts = [engine.prompts(2, seed=s)[1][: 200 + 7 * s] for s in range(12)]
        assert small.worst_error(prompts, small.generator.generate(prompts)) <= TOLERANCE
        assert preempted, "nothing was preempted: the test shows nothing"
    finally:
        small.generator.close()


def _block_size(generator) -> int:
    return generator.scheduler.vllm_config.cache_config.block_size


def _blocks_of_a_prompt(generator) -> int:
    """Of 299 or 300 tokens, and the block that vLLM keeps."""
    return -(-MAX_LEN // _block_size(generator)) + 1


def _kv_width(generator) -> int:
    config = generator.vllm_config.model_config.hf_text_config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_key_value_heads * head


@llama_alone
def test_a_kv_cache_below_one_prompt_is_refused_at_start(engine, monkeypatch):
    monkeypatch.setattr(kv_cache_budget, "_host_budget", lambda *_: 200_000)
    blocks, size = _blocks_of_a_prompt(engine.generator), _block_size(engine.generator)
    with pytest.raises(UsageError, match=rf"KV cache must hold one prompt of max_model_len: {blocks} blocks of {size}"):
        start("llama", engine.directory, engine.layer_ids)


@llama
def test_overlong_prompts_can_be_refused(engine, monkeypatch):
    from dataclasses import replace

    refusing = replace(engine.generator._compat_options, overlong="error")
    monkeypatch.setattr(engine.generator, "_compat_options", refusing)
    with pytest.raises(UsageError, match="prompt 1 with 400"):
        engine.generator.generate([[1], [2] * 400])


def test_a_worker_that_dies_closes_the_generator_with_an_error(models):
    victim = start("llama", models("llama", num_hidden_layers=6), [0])
    victim.generator.executor.workers[0].proc.kill()
    victim.generator.executor.workers[0].proc.join()
    with pytest.raises(RuntimeError):
        victim.generator.generate([[1, 2, 3]])
    with pytest.raises(RuntimeError, match="closed"):
        victim.generator.generate([[1, 2, 3]])


def test_closing_ends_the_workers_and_is_once(models):
    closing = start("llama", models("llama", num_hidden_layers=6), [0])
    workers = [worker.proc for worker in closing.generator.executor.workers]
    with closing.generator as generator:
        assert generator.generate([[1, 2]])
    assert not any(worker.is_alive() for worker in workers)
    closing.generator.close()
    with pytest.raises(RuntimeError, match="closed"):
        closing.generator.generate([[1]])
