"""Rows of turns over a made-up template, whose every token says where it came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_compat.boundaries import UnstableTemplateError, agreement, turn_rows

PROMPT, SCAFFOLD, END = 1, 2, 3
ROLES = ("system", "user", "assistant", "tool")
WORDS = st.lists(st.integers(100, 110), max_size=4)
TURNS = st.lists(
    st.builds(lambda role, words: {"role": role, "words": words}, st.sampled_from(ROLES), WORDS), max_size=8
)
IDS = st.lists(st.integers(0, 3), max_size=8)


def own(turn):
    """What the verifier writes for a turn."""
    return [*turn["words"], END]


def template(turns, prompt, header=lambda turn: [10 + ROLES.index(turn["role"])], opened=()):
    ids = [token for turn in turns for token in (*header(turn), *own(turn))]
    return [*ids, 10 + ROLES.index("assistant"), *opened] if prompt else ids


@given(TURNS)
def test_one_row_for_each_assistant_turn_that_follows_another(turns):
    rows, left_out = turn_rows(turns, template, 10**6)
    assert [row.turn for row in rows] == [n for n, turn in enumerate(turns, 1) if turn["role"] == "assistant" and n > 1]
    assert left_out == []


@given(TURNS)
def test_the_mask_is_what_the_verifier_wrote_and_the_rest_what_it_was_asked(turns):
    rows, _ = turn_rows(turns, template, 10**6)
    for row in rows:
        assert row.ids == template(turns[: row.turn], False)
        assert row.ids[: row.start] == template(turns[: row.turn - 1], True)
        assert [token for token, weight in zip(row.ids, row.mask, strict=True) if weight] == own(turns[row.turn - 1])


@given(TURNS, st.integers(1, 30))
def test_only_turns_whose_context_fills_the_limit_are_left_out(turns, limit):
    every, _ = turn_rows(turns, template, 10**6)
    rows, left_out = turn_rows(turns, template, limit)
    assert rows == [row for row in every if row.start < limit]
    assert sorted([*left_out, *(row.turn for row in rows)]) == [row.turn for row in every]


@given(TURNS)
def test_a_prompt_that_says_more_than_the_turn_costs_no_token_of_the_turn(turns):
    """A thinking block is opened for the model, and the turn as recorded has none."""
    rows, _ = turn_rows(turns, lambda some, prompt: template(some, prompt, opened=[SCAFFOLD]), 10**6)
    plain, _ = turn_rows(turns, template, 10**6)
    assert rows == plain


@given(TURNS)
def test_a_template_that_counts_its_turns_is_refused(turns):
    """Earlier turns read otherwise once one more is there."""

    def counting(some, prompt):
        return [200 + len(some), *template(some, prompt)]

    if any(turn["role"] == "assistant" for turn in turns[1:]):
        with pytest.raises(UnstableTemplateError, match="what came before turn"):
            turn_rows(turns, counting, 10**6)
    else:
        assert turn_rows(turns, counting, 10**6) == ([], [])


def test_each_row_has_the_thought_of_its_own_turn_where_the_template_hides_earlier_ones():
    def hiding(some, prompt):
        last = [{**turn, "words": [90, *turn["words"]]} for turn in some[-1:]]
        shows = not prompt and last and last[0]["role"] == "assistant"
        return template([*some[:-1], *last] if shows else some, prompt)

    turns = [{"role": role, "words": [100]} for role in ("user", "assistant", "user", "assistant")]
    rows, _ = turn_rows(turns, hiding, 10**6)
    assert [row.ids.count(90) for row in rows] == [1, 1]
    assert [row.ids[row.start :] for row in rows] == [[90, 100, END]] * 2


@given(IDS, IDS, IDS)
def test_agreement_is_the_longest_common_beginning(common, first, second):
    one, other = [*common, *first], [*common, *second]
    length = agreement(one, other)
    assert length >= len(common)
    assert one[:length] == other[:length]
    assert agreement(other, one) == length
    assert one[length : length + 1] != other[length : length + 1] or length == len(one) == len(other)
