import logging

import pytest

from speculators_compat.drifts.whole_turns import DRIFT
from speculators_compat.testing import make_kimi_k25, make_llama
from tests.drafts import prepare
from tests.support import shim, speculators_is

pytestmark = pytest.mark.engine

# What datasets before 5 makes of turns with different keys; datasets 5 keeps them apart.
NULLS = [
    {"from": None, "value": None, "role": "user", "content": "one"},
    {"from": None, "value": None, "role": "assistant", "content": "an answer"},
]
CALL = {"id": "f:0", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
OTHER = {"id": "g:1", "type": "function", "function": {"name": "g", "arguments": {"b": "two"}}}
TOOLS = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, OTHER]},
    {"role": "tool", "tool_call_id": "f:0", "content": "a result"},
    {"role": "assistant", "content": "an answer"},
]
PICTURE = [{"role": "user", "content": [{"type": "image", "url": "x"}]}]


def normalized(turns, without=""):
    with shim(without=without):
        from speculators.data_generation import preprocessing

        return preprocessing._normalize_conversation(turns)


def test_null_keys_hide_the_role_without_and_are_ignored_with():
    # Skipped up to 0.7; from 0.8 on every turn becomes the assistant's, and the user's words are trained on.
    without = [turn["role"] for turn in normalized(NULLS, without=DRIFT.id)]
    assert without == (["assistant", "assistant"] if speculators_is(">=0.8") else [])
    assert normalized(NULLS) == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "an answer"}]


def test_reasoning_and_results_under_other_names_are_lost_without_and_kept_with():
    turns = [{"role": "observation", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "hm"}]
    before = normalized(turns, without=DRIFT.id)
    assert "tool" not in [turn["role"] for turn in before]
    assert "hm" not in str(before)
    result, answer = normalized(turns)
    assert result == {"role": "tool", "content": "a"}
    assert answer["reasoning_content"] == answer["thinking"] == "hm"


def test_an_unknown_role_drops_its_conversation_with_a_reason(caplog):
    with caplog.at_level(logging.WARNING):
        assert normalized([{"role": "critic", "content": "a"}]) == []
    assert "Conversation is dropped: turn 1 has the role 'critic'" in caplog.text


def test_pictures_go_to_those_releases_that_show_them_to_the_model():
    assert normalized(PICTURE) == (PICTURE if speculators_is(">=0.6") else [])


@pytest.mark.skipif(speculators_is(">=0.6"), reason="upstream keeps tool results from 0.6 on")
def test_tool_result_reaches_a_fast_tokenizers_template(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(without=DRIFT.id), caplog.at_level(logging.WARNING):
        (before,), tokenizer = prepare(verifier, [TOOLS], tmp_path / "a")
    assert "Unknown role 'tool', skipping turn" in caplog.text
    assert "a result" not in tokenizer.decode(before["input_ids"])
    with shim():
        (after,), _ = prepare(verifier, [TOOLS], tmp_path / "b")
    assert "<|im_start|>tool\na result<|im_end|>" in tokenizer.decode(after["input_ids"])


def test_arguments_of_two_shapes_stay_as_they_are(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim():
        rows, tokenizer = prepare(verifier, [TOOLS], tmp_path, processes=1)
    text = tokenizer.decode(max((row["input_ids"] for row in rows), key=len))
    assert '{"a": 1}' in text
    assert '{"b": "two"}' in text
