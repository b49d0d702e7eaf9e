"""Reading conversations: every spelling of a turn, and what is refused."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_compat.conversations import AS_GIVEN, are_arrow_safe, has_media, pack, read_turns


def test_null_keys_are_absent_keys():
    turns = [{"from": None, "value": None, "role": "user", "content": "one"}]
    assert read_turns(turns) == [{"role": "user", "content": "one"}]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_given_under_both_names_that_templates_ask_for(key):
    (turn,) = read_turns([{"role": "assistant", "content": "b", key: "a"}])
    assert turn == {"role": "assistant", "content": "b", "reasoning_content": "a", "thinking": "a"}


def test_reasoning_of_a_user_is_not_rendered():
    assert read_turns([{"role": "user", "content": "b", "thinking": "a"}]) == [{"role": "user", "content": "b"}]


@pytest.mark.parametrize("turns", [[], None])
def test_no_turns(turns):
    with pytest.raises(ValueError, match="no turns"):
        read_turns(turns)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ("text", "not a table"),
        ({"content": "a"}, "role None"),
        ({"role": "user", "content": 3}, "type int"),
        ({"role": "assistant", "content": "", "tool_calls": "no json"}, "Expecting value"),
    ],
)
def test_what_is_no_turn_is_refused(turn, message):
    with pytest.raises(ValueError, match=message):
        read_turns([turn])


def test_dropout_keeps_first_turns_through_an_answer():
    turns = [{"role": role, "content": str(n)} for n, role in enumerate(["user", "assistant"] * 4)]
    random.seed(0)
    found = [read_turns(turns, True) for _ in range(50)]
    assert {len(kept) for kept in found} == {2, 4, 6, 8}
    assert all(kept == turns[: len(kept)] for kept in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(JSON)
def test_packed_turns_come_back_as_they_were(arguments):
    turn = {
        "role": "assistant",
        "content": "a",
        "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": arguments}}],
    }
    assert not are_arrow_safe([{"conversations": [turn]}])
    packed = json.loads(json.dumps(pack({"conversations": [turn]})))
    assert list(packed["conversations"][0]) == [AS_GIVEN]
    assert read_turns(packed["conversations"]) == read_turns([turn])


def test_plain_rows_are_left_alone():
    rows = [{"conversations": [{"from": "human", "value": "one"}], "id": 3}, {"conversations": None, "id": None}]
    assert are_arrow_safe(rows)
    assert are_arrow_safe([{"input_ids": [1], "loss_mask": [1]}])


@pytest.mark.parametrize(
    "rows",
    [
        [{"conversations": [], "tools": [{"type": "function"}]}],
        [
            {"conversations": [{"role": "user", "content": "one"}]},
            {"conversations": [{"role": "user", "content": [{}]}]},
        ],
        [{"conversations": [{"role": "user", "content": "one", "weight": 1}]}],
        [{"conversations": [], "id": 3}, {"conversations": [], "id": "four"}],
        [{"conversations": [], "source": {"name": "a"}}],
    ],
)
def test_what_an_arrow_table_would_change_or_refuse_is_packed(rows):
    assert not are_arrow_safe(rows)
    packed = [pack(row) for row in rows]
    assert all(isinstance(value, str) for row in packed for key, value in row.items() if key != "conversations")
    assert [[json.loads(turn[AS_GIVEN]) for turn in row["conversations"]] for row in packed] == [
        row["conversations"] for row in rows
    ]


def test_rows_of_ids_and_rows_of_another_column_keep_it():
    assert pack({"input_ids": [1], "loss_mask": [0], "id": 7}) == {"input_ids": [1], "loss_mask": [0], "id": "7"}
    assert pack({"messages": [{"role": "user"}]}) == {"messages": '[{"role": "user"}]'}


def test_parts_that_are_not_text_are_kept_for_those_who_can_show_them():
    parts = [{"type": "text", "text": "what is"}, {"type": "image", "url": "x"}]
    turn = {"role": "user", "content": parts}
    assert has_media(turn)
    assert read_turns([turn], media=True) == [turn]
    with pytest.raises(ValueError, match="type 'image'"):
        read_turns([turn])
    text = {"role": "user", "content": [{"type": None, "text": "one "}, {"type": "text", "text": "two"}]}
    assert not has_media(text)
    assert read_turns([text], media=True) == [{"role": "user", "content": "one two"}]
