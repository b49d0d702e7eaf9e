"""The loop and its books against a scheduler that chunks, reorders, preempts and starves.

The fake engine below is the worst that a scheduler may do within vLLM's contract; real ones run in tests/e2e.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speculators_compat.capture.ledger import CaptureError
from speculators_compat.capture.loop import prefill
from speculators_compat.capture.prompts import Prompt
from speculators_compat.drift import UsageError

pytestmark = pytest.mark.default_pair

LAYERS, HIDDEN = 2, 3


def states_of(prompt: list[int], layer: int) -> torch.Tensor:
    """Rows that depend on token, position and layer, so that every mix-up shows."""
    rows = [[1000.0 * layer + position, float(token), float(prompt[0])] for position, token in enumerate(prompt)]
    return torch.tensor(rows)


class Engine:
    """Scheduler, executor and runner in one; a seeded random source decides what happens in a step."""

    abort = "aborted"

    def __init__(self, seed: int, budget: int, max_seqs: int = 4, preempt: float = 0.0, plant=None) -> None:
        self.random, self.budget, self.max_seqs = random.Random(seed), budget, max_seqs
        self.preempt, self.plant = preempt, plant
        self.waiting: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.known_to_workers: set[str] = set()
        self.pending_finished: set[str] = set()
        self.preemptions = 0
        self.starve = False
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks=7, block_size=16))
        self.scheduler = self.executor = self
        self.step = None

    # scheduler
    def add_request(self, request) -> None:
        self.waiting[request.id] = request.tokens
        self.computed[request.id] = 0

    def schedule(self):
        started = [r for r in self.waiting if self.computed[r]]
        if len(started) > 1 and self.random.random() < self.preempt:
            self.computed[self.random.choice(started)] = 0
            self.preemptions += 1
        counts, starts, left = {}, {}, 0 if self.starve else self.budget
        for request_id in list(self.waiting)[: self.max_seqs]:
            count = min(left, len(self.waiting[request_id]) - self.computed[request_id])
            if count > 0:
                count = self.random.randint(1, count)
                counts[request_id], starts[request_id] = count, self.computed[request_id]
                left -= count
        for request_id, count in counts.items():
            self.computed[request_id] += count
        new = [
            SimpleNamespace(req_id=r, num_computed_tokens=s)
            for r, s in starts.items()
            if r not in self.known_to_workers
        ]
        old = [r for r in starts if r in self.known_to_workers]
        finished, self.pending_finished = self.pending_finished, set()
        return SimpleNamespace(
            total_num_scheduled_tokens=sum(counts.values()),
            num_scheduled_tokens=counts,
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimpleNamespace(req_ids=old, num_computed_tokens=[starts[r] for r in old]),
            finished_req_ids=finished,
            starts=starts,
        )

    def finish_requests(self, request_ids, status) -> None:
        assert status == self.abort
        for request_id in request_ids:
            del self.waiting[request_id], self.computed[request_id]
            self.pending_finished.add(request_id)

    # executor and runner
    def execute_model(self, scheduled):
        self.known_to_workers -= scheduled.finished_req_ids
        order = list(scheduled.num_scheduled_tokens)
        self.random.shuffle(order)
        self.known_to_workers |= set(order)
        self.step = (scheduled, order)
        return SimpleNamespace(req_ids=order if self.plant != "order" else order[::-1])

    def collective_rpc(self, method, args=()):
        if method == "_reset_capture":
            return [None, None]
        scheduled, order = self.step
        layers, tokens = [], []
        for request_id in order:
            start, count = scheduled.starts[request_id], scheduled.num_scheduled_tokens[request_id]
            tokens.extend(self.waiting[request_id][start : start + count])
        for layer in range(LAYERS):
            rows = [
                states_of(self.waiting[r], layer)[scheduled.starts[r] :][: scheduled.num_scheduled_tokens[r]]
                for r in order
            ]
            layers.append(torch.cat(rows))
        reply = {"states": layers, "finite": [True] * LAYERS, "token_ids": torch.tensor(tokens)}
        if self.plant == "missing row":
            reply["states"] = [layer[:-1] for layer in layers]
        if self.plant == "layer lost":
            reply["states"] = layers[:1]
        if self.plant == "nan":
            reply["finite"] = [True, False]
        if self.plant == "blind order":
            reply["token_ids"] = None
        return [reply, None] if self.plant != "two ranks" else [reply, reply]


def run(engine: Engine, prompts: list[list[int]], call: int = 0):
    by_id = {f"req_{call}_{i}": Prompt(i, tokens, 0) for i, tokens in enumerate(prompts)}
    requests = {i: SimpleNamespace(id=i, tokens=p.token_ids) for i, p in by_id.items()}
    return prefill(engine, requests, by_id, LAYERS).results()


def check(prompts, results) -> None:
    assert len(results) == len(prompts)
    for prompt, result in zip(prompts, results, strict=True):
        assert result["input_ids"].tolist() == prompt
        for layer, states in enumerate(result["hidden_states"]):
            assert torch.equal(states, states_of(prompt, layer))


batches = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), budget=st.integers(1, 40), prompts=batches, preempt=st.sampled_from([0.0, 0.3]))
def test_every_row_arrives_at_its_prompt(seed, budget, prompts, preempt):
    engine = Engine(seed, budget, preempt=preempt)
    for call in range(3):
        check(prompts, run(engine, prompts, call))
        assert not engine.waiting, "requests leak into the next call"
        assert not engine.known_to_workers, "the workers were not told which requests ended"


def test_preemption_is_really_exercised():
    engine = Engine(seed=3, budget=7, preempt=0.3)
    prompts = [[i % 10] * (5 + i) for i in range(20)]
    check(prompts, run(engine, prompts))
    assert engine.preemptions > 3


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        ("order", "other tokens|not waiting|tokens ran|never ran"),
        ("missing row", "rows"),
        ("layer lost", "2 layers were asked for, 1 captured"),
        ("nan", "infinite or NaN"),
        ("two ranks", "one worker must return states, 2 of 2 did"),
    ],
)
def test_planted_faults_fail_the_call(plant, said):
    engine = Engine(seed=1, budget=64, plant=plant)
    with pytest.raises(CaptureError, match=said):
        run(engine, [[1, 2, 3, 4], [5, 6, 7], [8, 9]])


def test_without_the_echo_of_tokens_rows_still_follow_the_runners_order():
    prompts = [[1, 2, 3, 4], [5, 6, 7], [8, 9]]
    check(prompts, run(Engine(seed=1, budget=64, plant="blind order"), prompts))


def test_an_output_without_order_is_refused():
    engine = Engine(seed=1, budget=64)
    engine.execute_model = lambda scheduled: None
    with pytest.raises(CaptureError, match="two_phase_execution"):
        run(engine, [[1, 2]])


def test_a_full_kv_cache_is_one_error_and_the_next_call_is_clean():
    engine = Engine(seed=1, budget=64)
    engine.starve = True
    with pytest.raises(UsageError, match="KV cache must hold a whole prompt: 40 tokens need 4 blocks of 16"):
        run(engine, [[1] * 40, [2, 3]])
    assert not engine.waiting
    engine.starve = False
    prompts = [[4, 5, 6], [7]]
    check(prompts, run(engine, prompts, call=1))
    assert not engine.known_to_workers


def test_a_starved_call_gives_back_requests_that_had_begun():
    engine = Engine(seed=1, budget=8)
    original, steps = engine.schedule, []

    def schedule():
        steps.append(1)
        engine.starve = len(steps) > 2
        return original()

    engine.schedule = schedule
    with pytest.raises(UsageError, match="KV cache"):
        run(engine, [[1] * 40, [2] * 30])
    engine.schedule, engine.starve = original, False
    assert not engine.waiting
    assert not engine.known_to_workers


def test_what_ended_before_a_starved_step_still_reaches_the_workers():
    engine = Engine(seed=1, budget=64)
    original = engine.schedule

    def schedule():
        engine.starve = "req_0_0" not in engine.waiting
        return original()

    engine.schedule = schedule
    with pytest.raises(UsageError, match="KV cache"):
        run(engine, [[1], [2] * 60])
    assert not engine.known_to_workers
