"""The id-based loss mask: Kimi's turns by hand, and properties over any ids."""

from hypothesis import given
from hypothesis import strategies as st

from speculators_compat.masks import through_turn_end, turn_mask, without_thinking

ASSISTANT, MIDDLE, END, USER = 1, 2, 3, 4
MARKS = (ASSISTANT, MIDDLE, END)

IDS = st.lists(st.integers(0, 9), max_size=60)
TEXT = st.lists(st.integers(5, 9), max_size=6)


def test_content_and_end_token_of_an_assistant_turn():
    ids = [USER, 8, MIDDLE, 9, END, ASSISTANT, 8, MIDDLE, 9, 9, END]
    assert turn_mask(ids, *MARKS) == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_empty_turn_still_teaches_its_end():
    assert turn_mask([ASSISTANT, 8, MIDDLE, END], *MARKS) == [0, 0, 0, 1]


def test_turn_cut_in_its_content():
    assert turn_mask([ASSISTANT, 8, MIDDLE, 9, 9], *MARKS) == [0, 0, 0, 1, 1]


def test_turn_cut_in_its_header():
    assert turn_mask([ASSISTANT, 8, 8], *MARKS) == [0, 0, 0]


def test_assistant_token_quoted_by_a_user_opens_nothing_past_the_turn():
    ids = [USER, 8, MIDDLE, 9, ASSISTANT, 9, END, USER, 8, MIDDLE, 9, END]
    assert turn_mask(ids, *MARKS) == [0] * len(ids)


def test_middle_and_assistant_tokens_quoted_in_the_answer_do_not_end_it():
    ids = [ASSISTANT, 8, MIDDLE, 9, MIDDLE, ASSISTANT, 9, END, 9]
    assert turn_mask(ids, *MARKS) == [0, 0, 0, 1, 1, 1, 1, 1, 0]


@given(IDS, st.integers(0, 60))
def test_mask_of_a_truncated_conversation_is_the_truncated_mask(ids, cut):
    assert turn_mask(ids[:cut], *MARKS) == turn_mask(ids, *MARKS)[:cut]


@given(st.lists(st.tuples(st.sampled_from([USER, ASSISTANT]), TEXT, TEXT), max_size=8))
def test_every_assistant_turn_and_nothing_else(turns):
    ids, expected = [], []
    for role, name, content in turns:
        ids += [role, *name, MIDDLE, *content, END]
        weight = int(role == ASSISTANT)
        expected += [0] * (len(name) + 2) + [weight] * (len(content) + 1)
    assert turn_mask(ids, *MARKS) == expected


@given(IDS)
def test_one_weight_a_token_and_no_other_value(ids):
    mask = turn_mask(ids, *MARKS)
    assert len(mask) == len(ids)
    assert set(mask) <= {0, 1}


OPEN, CLOSE = 5, 6


def test_thinking_is_taken_out_with_its_tokens():
    ids = [1, OPEN, 9, CLOSE, 8, 3, OPEN, CLOSE, 8, 3]
    mask = [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert without_thinking(ids, mask, OPEN, CLOSE) == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1]


def test_thinking_that_is_not_closed_ends_with_its_run():
    assert without_thinking([OPEN, 9, 4, 8, 9], [1, 1, 0, 1, 1], OPEN, CLOSE) == [0, 0, 0, 1, 1]


def test_thinking_that_the_prompt_opens_is_taken_out_too():
    assert without_thinking([1, 90, 7, 8, 91, 2, 3], [0, 0, 1, 1, 1, 1, 1], 90, 91) == [0, 0, 0, 0, 0, 1, 1]
    assert without_thinking([90, 91, 2], [0, 1, 1], 90, 91) == [0, 0, 1]


def test_thinking_quoted_outside_the_mask_hides_nothing():
    assert without_thinking([OPEN, 9, 8, 8], [0, 0, 1, 1], OPEN, CLOSE) == [0, 0, 1, 1]


def test_run_goes_on_through_one_special_token():
    assert through_turn_end([8, 8, 3, 3, 8, 3], [0, 1, 0, 0, 1, 0], {3}) == [0, 1, 1, 0, 1, 1]


def test_run_before_ordinary_text_or_after_a_special_token_stays():
    assert through_turn_end([8, 8, 9, 3], [0, 1, 0, 0], {3}) == [0, 1, 0, 0]
    assert through_turn_end([8, 3, 3], [1, 1, 0], {3}) == [1, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=40))
def test_masks_change_in_one_direction_only(rows):
    ids, mask = [token for token, _ in rows], [weight for _, weight in rows]
    assert all(new <= old for new, old in zip(without_thinking(ids, mask, OPEN, CLOSE), mask, strict=True))
    assert all(new >= old for new, old in zip(through_turn_end(ids, mask, {3, 4}), mask, strict=True))
