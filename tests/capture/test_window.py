"""Which prompts make a step."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculators_compat.capture.prompts import Prompt
from speculators_compat.capture.window import Window

pytestmark = pytest.mark.default_pair


def window(lengths, budget=100, max_prompts=8):
    return Window((Prompt(i, [0] * n, 0) for i, n in enumerate(lengths)), budget, max_prompts)


def taken(found):
    return [(prompt.index, len(prompt.token_ids)) for prompt in found]


def test_the_oldest_leads_and_the_longest_that_fit_follow():
    prompts = window([20, 30, 70, 90, 10])
    prompts.fill(math.inf)
    assert taken(prompts.take(0, 0)) == [(0, 20), (2, 70), (4, 10)]
    assert taken(prompts.take(0, 0)) == [(1, 30), (3, 90)], "30 of 100 is no full step: a prompt is cut"
    assert prompts.take(0, 0) == []


def test_equal_prompts_come_in_order():
    prompts = window([25] * 8)
    prompts.fill(math.inf)
    assert [i for i, _ in taken(prompts.take(0, 0))] == [0, 1, 2, 3]


def test_what_the_scheduler_holds_counts():
    prompts = window([50, 40, 30], max_prompts=2)
    prompts.fill(math.inf)
    assert taken(prompts.take(95, 1)) == [], "nearly full: nothing is cut for the rest"
    assert taken(prompts.take(60, 1)) == [(1, 40)]
    assert taken(prompts.take(0, 2)) == [], "no more prompts in a step than the scheduler takes"


def test_a_prompt_longer_than_a_step_is_not_put_off():
    prompts = window([150, 50, 50, 50])
    prompts.fill(math.inf)
    assert taken(prompts.take(0, 0)) == [(0, 150)]


def test_reading_stops_where_it_was_told():
    prompts = window([1] * 10)
    prompts.fill(3)
    prompts.fill(3)
    assert len(prompts) == 3
    prompts.take(0, 6)
    prompts.fill(3)
    assert [i for i, _ in taken(prompts.take(0, 0))] == [2, 3, 4]
    assert not prompts.exhausted
    prompts.fill(math.inf)
    assert (len(prompts), prompts.exhausted) == (5, True)


@settings(deadline=None)
@given(st.lists(st.integers(1, 250), max_size=60), st.integers(1, 10))
def test_steps_are_full_and_every_prompt_comes_once(lengths, max_prompts):
    prompts = window(lengths, max_prompts=max_prompts)
    prompts.fill(math.inf)
    seen, left = [], 0
    while len(prompts):
        step = prompts.take(left, int(left > 0))
        seen += [prompt.index for prompt in step]
        total = left + sum(len(prompt.token_ids) for prompt in step)
        assert total >= 90 or not len(prompts) or len(step) + (left > 0) == max_prompts
        left = max(0, total - 100)
    assert sorted(seen) == list(range(len(lengths)))
