import logging

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.whole_turns import DRIFT
from speculators_compat.testing import make_kimi_k25, make_llama
from tests.drafts import prepare
from tests.support import shim

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


def test_symptom_without_and_null_keys_ignored_with(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    off = f"{DRIFT.id},dropped_conversations"
    with shim(without=off), caplog.at_level(logging.WARNING), pytest.raises(IndexError):
        prepare(verifier, [NULLS], tmp_path / "a")
    assert "Unknown role 'None', skipping turn" in caplog.text
    with shim():
        dataset, tokenizer = prepare(verifier, [NULLS], tmp_path / "b")
    (row,) = dataset
    assert tokenizer.decode(row["input_ids"][row["loss_mask"].bool()]) == "an answer<|im_end|>"


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
        (row,), tokenizer = prepare(verifier, [TOOLS], tmp_path, processes=1)
    text = tokenizer.decode(row["input_ids"])
    assert '{"a": 1}' in text
    assert '{"b": "two"}' in text


def test_a_line_that_is_no_json_is_named(tmp_path):
    from speculators_compat.drifts.whole_turns import _rows

    path = tmp_path / "data.jsonl"
    path.write_text('{"conversations": []}\n\n{"conversations": [}\n')
    with pytest.raises(UsageError, match="line 3"):
        list(_rows(path))
    path.write_text('[{"conversations": []}, 3]')
    with pytest.raises(UsageError, match="a row of type int"):
        list(_rows(path))
