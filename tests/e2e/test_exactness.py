"""Captured states equal Hugging Face transformers', row by row, on a real engine in float32."""

from __future__ import annotations

import pytest

from speculators_compat.capture import loop
from speculators_compat.capture.ledger import CaptureError, Ledger
from tests.support import KIMI_REASON, kimi_runs

pytestmark = pytest.mark.engine

TOLERANCE = 2e-5
#: These depend on vLLM and the capture alone: one pair shows them.
default_pair = pytest.mark.default_pair
cell = pytest.mark.cell
kimi = pytest.mark.skipif(not kimi_runs(), reason=KIMI_REASON)
KINDS = [
    pytest.param(("llama", 1), marks=cell),
    pytest.param(("qwen3", 1), marks=default_pair),
    pytest.param(("qwen3_moe", 1), marks=default_pair),
    pytest.param(("gemma3", 1), marks=default_pair),
    pytest.param(("kimi_k25", 1), marks=[cell, default_pair, kimi]),
    pytest.param(("kimi_k25", 2), marks=kimi),
]

every_engine = pytest.mark.parametrize("engine", KINDS, indirect=True, ids=lambda k: f"{k[0]}-tp{k[1]}")
one_engine = pytest.mark.parametrize("engine", [("llama", 1)], indirect=True, ids=lambda k: f"{k[0]}-tp{k[1]}")


@every_engine
def test_three_calls_of_1_7_and_40_prompts(engine, record_property):
    worst = 0.0
    for count in (1, 7, 40):
        prompts = engine.prompts(count, seed=count)
        worst = max(worst, engine.worst_error(prompts, engine.generator.generate(prompts)))
        assert worst <= TOLERANCE
    record_property(f"worst_error_{engine.kind}", worst)


@every_engine
def test_the_workers_found_the_decoder_and_watch_its_tokens(engine, monkeypatch):
    """The echo of token ids is what finds a wrong order at run time: it must be there for every model."""
    seen = []
    place = Ledger.place

    def spy(self, step, reply):
        seen.append(reply["token_ids"] is not None)
        return place(self, step, reply)

    monkeypatch.setattr(Ledger, "place", spy)
    engine.generator.generate(engine.prompts(2, seed=1))
    assert seen
    assert all(seen)


@one_engine
def test_tensors_and_mixed_forms_give_the_same_states(engine):
    import torch

    rows = engine.prompts(12, seed=5)
    square = [row[:15] for row in rows if len(row) >= 15]
    batches = [square, [torch.tensor(row) for row in square], torch.tensor(square)]
    first, *others = [engine.generator.generate(batch) for batch in batches]
    assert engine.worst_error(square, first) <= TOLERANCE
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a["hidden_states"], b["hidden_states"], strict=True))


@one_engine
def test_a_planted_wrong_order_is_refused_by_the_echo_of_tokens(engine, models, monkeypatch):
    """The runner's order, reversed: the call must fail rather than return the rows of other prompts."""
    from tests.e2e.conftest import start

    victim = start(engine.kind, engine.directory, engine.layer_ids)
    try:
        original = loop._order
        monkeypatch.setattr(loop, "_order", lambda output: original(output)[::-1])
        with pytest.raises(CaptureError, match=r"other tokens|prompt has fewer|never ran"):
            victim.generator.generate(engine.prompts(3, seed=9))
        with pytest.raises(RuntimeError, match="closed"):
            victim.generator.generate([[1]])
    finally:
        victim.generator.close()


@one_engine
@pytest.mark.parametrize("plant", ["rows shifted by one", "layers swapped", "prompts swapped"])
def test_the_comparison_sees_what_is_planted(engine, plant):
    prompts = engine.prompts(7, seed=3)
    results = engine.generator.generate(prompts)
    assert engine.worst_error(prompts, results) <= TOLERANCE
    first, second = results[1]["hidden_states"], results[3]["hidden_states"]
    if plant == "rows shifted by one":
        first[2] = first[2].roll(1, dims=0)
    elif plant == "layers swapped":
        first[0], first[1] = first[1], first[0]
    else:
        short = second[0].shape[0]
        first[0][:short], second[0][:] = second[0].clone(), first[0][:short].clone()
    assert engine.worst_error(prompts, results) > 100 * TOLERANCE
