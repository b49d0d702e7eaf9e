"""The loop and its books against a scheduler that chunks, reorders, preempts and starves.

The fake below is the worst that a scheduler may do within vLLM's contract; real engines run in tests/e2e. Its worker is
as lazy as an accelerator: a slot holds rubbish until its arrival has been waited for.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speculators_compat.capture import loop
from speculators_compat.capture.ledger import CaptureError
from speculators_compat.capture.loop import Engine
from speculators_compat.capture.prompts import Prompt
from speculators_compat.capture.stream import SourceError, extract, guarded
from speculators_compat.capture.transport import Layout, Ring, slot_on
from speculators_compat.drift import UsageError

pytestmark = pytest.mark.default_pair

LAYERS, HIDDEN = 2, 3


def states_of(prompt: list[int], layer: int) -> torch.Tensor:
    """Rows that depend on token, position and layer, so that every mix-up shows."""
    rows = [[1000.0 * layer + position, float(token), float(prompt[0])] for position, token in enumerate(prompt)]
    return torch.tensor(rows)


class Later:
    """A future that computes when it is asked, as late as a reply may be read."""

    def __init__(self, compute) -> None:
        self.result = compute


class Fake:
    """Scheduler, executor and runner in one; a seeded random source decides what happens in a step."""

    abort = "aborted"

    def __init__(
        self, seed: int, budget: int, max_seqs: int = 4, preempt: float = 0.0, plant=None, slots: int = 6, chunk=True
    ) -> None:
        self.random, self.budget, self.max_seqs = random.Random(seed), budget, max_seqs
        self.preempt, self.plant, self.chunk = preempt, plant, chunk
        self.waiting: dict[str, list[int]] = {}
        self.tokens: dict[str, list[int]] = {}
        self.pending: dict[int, object] = {}
        self.computed: dict[str, int] = {}
        self.known_to_workers: set[str] = set()
        self.pending_finished: set[str] = set()
        self.preemptions = 0
        self.starve = False
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks=7, block_size=16))
        self.ring = Ring(Layout(LAYERS, budget, HIDDEN, "float32", 4, slots))
        self.ring.segment.unlink()
        self.flying = self.steps = 0
        self.ahead_of_waits: list[int] = []

    def engine(self, call: int = 0) -> Engine:
        return Engine(
            scheduler=self,
            executor=self,
            ring=self.ring,
            request=lambda request_id, tokens: SimpleNamespace(id=request_id, tokens=tokens),
            abort=self.abort,
            call=f"req_{call}",
            num_layers=LAYERS,
            budget=self.budget,
            max_prompts=self.max_seqs,
        )

    # scheduler
    def add_request(self, request) -> None:
        self.waiting[request.id] = self.tokens[request.id] = request.tokens
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
                count = self.random.randint(1, count) if self.chunk else count
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
    def execute_model(self, scheduled) -> None:
        assert not scheduled.num_scheduled_tokens
        self.known_to_workers -= scheduled.finished_req_ids

    def collective_rpc(self, method, args=(), non_block=False):
        assert non_block
        if method == "_wait_step":
            # Calls are answered in the order in which they are sent: a worker that waits cannot launch.
            self.ahead_of_waits.append(self.flying)
            self.flying -= 1
            return Later(lambda: self._arrive(args[0]))
        assert method == "_launch_step"
        self.steps += 1
        self.flying += 1
        return Later(self._launch(*args))

    def _launch(self, scheduled, number):
        """What the worker does at once: its own copy of what it was sent, and the order of its batch."""
        self.known_to_workers -= scheduled.finished_req_ids
        order = list(scheduled.num_scheduled_tokens)
        self.random.shuffle(order)
        self.known_to_workers |= set(order)
        pieces = [(self.tokens[r], scheduled.starts[r], scheduled.num_scheduled_tokens[r]) for r in order]
        slot = slot_on(self.ring.segment.map, self.ring.layout, number * self.ring.layout.slot_bytes)
        slot.states.fill_(-1.0)
        slot.token_ids.fill_(-1)
        assert number not in self.pending, "the slot of a step in flight was given away"
        self.pending[number] = (slot, pieces)
        reply = {"req_ids": order[::-1] if self.plant == "order" else order, "watched": self.plant != "blind order"}
        if self.plant == "dies":
            raise RuntimeError("Worker failed")
        return lambda: [reply, reply if self.plant == "two ranks" else None]

    def _arrive(self, number):
        slot, pieces = self.pending.pop(number)
        row = 0
        for tokens, start, count in pieces:
            slot.token_ids[row : row + count] = torch.tensor(tokens[start : start + count])
            for layer in range(LAYERS):
                slot.states[layer, row : row + count] = states_of(tokens, layer)[start : start + count]
            row += count
        slot.bounds.zero_()
        if self.plant == "nan":
            slot.bounds[1, 1] = float("nan")
        return [number, None]


def run(fake: Fake, prompts: list[list[int]], call: int = 0, *, size=float("inf"), ordered=False, copy=True):
    given = (Prompt(i, tokens, 0) for i, tokens in enumerate(prompts))
    how = {
        "size": size,
        "ordered": ordered,
        "copy": copy,
        "seconds": dict.fromkeys(("engine", "copy", "caller"), 0.0),
    }
    found = list(extract(fake.engine(call), given, **how))
    if ordered:
        assert [index for index, _ in found] == list(range(len(prompts)))
    return [dict(found)[index] for index in range(len(prompts))]


def check(prompts, results) -> None:
    assert len(results) == len(prompts)
    for prompt, result in zip(prompts, results, strict=True):
        assert result["input_ids"].tolist() == prompt
        for layer, states in enumerate(result["hidden_states"]):
            assert torch.equal(states, states_of(prompt, layer))


batches = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(1, 40),
    prompts=batches,
    preempt=st.sampled_from([0.0, 0.3]),
    slots=st.sampled_from([2, 3, 6]),
    size=st.sampled_from([1, 3, 8, float("inf")]),
    ordered=st.booleans(),
    copy=st.booleans(),
)
def test_every_row_arrives_at_its_prompt(seed, budget, prompts, preempt, slots, size, ordered, copy):
    fake = Fake(seed, budget, preempt=preempt, slots=slots)
    for call in range(3):
        results = run(fake, prompts, call, size=size, ordered=ordered, copy=copy)
        check(prompts, results)
        assert not fake.waiting, "requests leak into the next call"
        assert not fake.known_to_workers, "the workers were not told which requests ended"
        del results
        assert fake.ring.free == slots, "a slot is lost"


def test_steps_are_launched_ahead_of_the_one_that_is_read():
    fake = Fake(seed=1, budget=8, chunk=False)
    check([[1] * 8] * 20, run(fake, [[1] * 8] * 20))
    most = max(fake.ahead_of_waits)
    assert most == loop.DEPTH
    last = len(fake.ahead_of_waits) - most
    assert fake.ahead_of_waits[:last] == [most] * last, "a worker waits while it could launch"


def test_preemption_is_really_exercised():
    fake = Fake(seed=3, budget=7, preempt=0.3)
    prompts = [[i % 10] * (5 + i) for i in range(20)]
    check(prompts, run(fake, prompts))
    assert fake.preemptions > 3


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        ("order", "other tokens|not waiting|tokens ran|never ran"),
        ("nan", "infinite or NaN"),
        ("two ranks", "one worker must return states, 2 of 2 did"),
    ],
)
def test_planted_faults_fail_the_call(plant, said):
    with pytest.raises(CaptureError, match=said):
        run(Fake(seed=1, budget=64, plant=plant), [[1, 2, 3, 4], [5, 6, 7], [8, 9]])


def test_without_the_echo_of_tokens_rows_still_follow_the_runners_order():
    prompts = [[1, 2, 3, 4], [5, 6, 7], [8, 9]]
    check(prompts, run(Fake(seed=1, budget=64, plant="blind order"), prompts))


def test_a_worker_that_fails_fails_the_call():
    with pytest.raises(RuntimeError, match="Worker failed"):
        run(Fake(seed=1, budget=64, plant="dies"), [[1, 2]])


def test_a_full_kv_cache_is_one_error_and_the_next_call_is_clean():
    fake = Fake(seed=1, budget=64)
    fake.starve = True
    with pytest.raises(UsageError, match="KV cache must hold a whole prompt: 40 tokens need 4 blocks of 16"):
        run(fake, [[1] * 40, [2, 3]])
    assert not fake.waiting
    fake.starve = False
    prompts = [[4, 5, 6], [7]]
    check(prompts, run(fake, prompts, call=1))
    assert not fake.known_to_workers
    assert fake.ring.free == 6


def test_a_starved_call_gives_back_requests_that_had_begun():
    fake = Fake(seed=1, budget=8)
    original, steps = fake.schedule, []

    def schedule():
        steps.append(1)
        fake.starve = len(steps) > 2
        return original()

    fake.schedule = schedule
    with pytest.raises(UsageError, match="KV cache"):
        run(fake, [[1] * 40, [2] * 30])
    fake.schedule, fake.starve = original, False
    assert not fake.waiting
    assert not fake.known_to_workers
    assert fake.ring.free == 6


def results_of(fake: Fake, prompts, **how):
    how = {"size": 8, "ordered": True, "copy": False, **how}
    return extract(fake.engine(), prompts, seconds=dict.fromkeys(("engine", "copy", "caller"), 0.0), **how)


def test_a_caller_who_keeps_every_result_gets_copies_and_no_hang():
    prompts = [[i % 10] * (1 + i % 8) for i in range(60)]
    fake = Fake(seed=5, budget=8, chunk=False)
    kept = []
    for _, result in results_of(fake, (Prompt(i, p, 0) for i, p in enumerate(prompts))):
        kept.append(result)
    check(prompts, kept)
    assert 0 < fake.ring.lent <= 6 - loop.DEPTH - 1, "some slots are lent, never the last ones"
    kept.clear()
    assert fake.ring.free == 6


def test_a_caller_who_drops_results_gets_the_slots_own_memory():
    fake = Fake(seed=5, budget=8, chunk=False)
    lent = []
    for _, result in results_of(fake, (Prompt(i, [i % 10] * 8, 0) for i in range(40))):
        lent.append(fake.ring.lent)
        del result
    assert lent == [1] * 40


def test_a_slow_caller_holds_the_engine_back():
    """Nothing runs size of the caller by more than the steps in flight and the window."""
    fake = Fake(seed=5, budget=8, chunk=False)
    results = results_of(fake, (Prompt(i, [1] * 8, 0) for i in range(60)), size=4)
    for count, _ in enumerate(results, start=1):
        assert fake.steps <= count + loop.DEPTH


def test_a_dropped_caller_leaves_the_engine_clean():
    fake = Fake(seed=5, budget=8, preempt=0.2)
    results = results_of(fake, (Prompt(i, [i % 10] * (1 + i % 20), 0) for i in range(60)))
    next(results)
    results.close()
    assert not fake.waiting
    assert not fake.known_to_workers
    assert not fake.pending
    assert fake.ring.free == 6
    check([[4, 5]], run(fake, [[4, 5]], call=1))


def test_the_callers_own_exception_leaves_the_engine_clean():
    def source():
        for i in range(5):
            yield Prompt(i, [i] * 8, 0)
        raise KeyError("the caller's")

    fake = Fake(seed=5, budget=8, chunk=False)
    with pytest.raises(SourceError) as caught:
        list(results_of(fake, guarded(source()), size=2))
    assert isinstance(caught.value.error, KeyError)
    assert not fake.waiting
    assert fake.ring.free == 6, "the traceback, which is still there, keeps a slot"


def test_the_source_is_read_only_as_far_as_the_window():
    read = []

    def source():
        for i in range(100):
            read.append(i)
            yield Prompt(i, [1] * 8, 0)

    for count, _ in enumerate(results_of(Fake(seed=5, budget=8, chunk=False), source(), size=5), start=1):
        assert len(read) <= count + 5 + loop.DEPTH
