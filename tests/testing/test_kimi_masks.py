"""Kimi's conversations through speculators' own preparation, against token masks written by hand.

Each case is a conversation and the segments that it must become: text, and whether the draft is trained on it. Ids are
compared too, so a segment that is out of place, or a control token that should have been spelled out, shows.
"""

import json

import pytest
from tests.support import shim, speculators_is

from speculators_compat.testing import make_kimi_k25

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(speculators_is(">=0.8"), reason="a row a turn from 0.8 on: tests/e2e/test_prepare_releases.py"),
]

SYSTEM = "<|im_system|>system<|im_middle|>You are a patient teacher.<|im_end|>"
USER = "<|im_user|>user<|im_middle|>"
ASSISTANT = "<|im_assistant|>assistant<|im_middle|>"
CALLS, END_CALLS = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENT, END_CALL = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


CASES = {
    "one exchange after a system turn": (
        [{"role": "system", "content": "Be brief."}, user("one"), assistant("two")],
        [
            ("<|im_system|>system<|im_middle|>Be brief.<|im_end|>" + USER + "one<|im_end|>" + ASSISTANT, 0),
            ("<think></think>two<|im_end|>", 1),
        ],
    ),
    "several turns, the template's own system turn": (
        [user("one"), assistant("two"), user("three"), assistant("four")],
        [
            (SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0),
            ("<think></think>two<|im_end|>", 1),
            (USER + "three<|im_end|>" + ASSISTANT, 0),
            ("<think></think>four<|im_end|>", 1),
        ],
    ),
    "empty thinking": (
        [user("one"), assistant("two", reasoning_content="")],
        [(SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0), ("<think></think>two<|im_end|>", 1)],
    ),
    "thinking only": (
        [user("one"), assistant("", reasoning_content="hm, one")],
        [(SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0), ("<think>hm, one</think><|im_end|>", 1)],
    ),
    "thinking of earlier turns, which the template blanks": (
        [
            user("one"),
            assistant("two", thinking="first thought"),
            user("three"),
            assistant("four", reasoning="second thought"),
        ],
        [
            (SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0),
            ("<think>first thought</think>two<|im_end|>", 1),
            (USER + "three<|im_end|>" + ASSISTANT, 0),
            ("<think>second thought</think>four<|im_end|>", 1),
        ],
    ),
    "thinking inside the content": (
        [user("one"), assistant("<think>a thought</think>two"), user("three"), assistant("<think></think>four")],
        [
            (SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0),
            ("<think>a thought</think>two<|im_end|>", 1),
            (USER + "three<|im_end|>" + ASSISTANT, 0),
            ("<think></think>four<|im_end|>", 1),
        ],
    ),
    "a tool call with its result": (
        [
            user("weather?"),
            assistant(None, tool_calls=[call("get", {"city": "Köln"}, id="functions.get:0")]),
            {"role": "tool", "tool_call_id": "functions.get:0", "content": "rain"},
            assistant("It rains."),
        ],
        [
            (SYSTEM + USER + "weather?<|im_end|>" + ASSISTANT, 0),
            (
                (
                    f'<think></think>{CALLS}{CALL}functions.get:0{ARGUMENT}{{"city": "Köln"}}{END_CALL}{END_CALLS}'
                    "<|im_end|>"
                ),
                1,
            ),
            ("<|im_system|>tool<|im_middle|>## Return of functions.get:0\nrain<|im_end|>" + ASSISTANT, 0),
            ("<think></think>It rains.<|im_end|>", 1),
        ],
    ),
    "two calls without ids, after a thought; arguments as text and with other keys": (
        [
            user("both"),
            assistant("ok", reasoning_content="ask", tool_calls=[call("a", '{"x":1}'), call("b", {"n": [1, None]})]),
        ],
        [
            (SYSTEM + USER + "both<|im_end|>" + ASSISTANT, 0),
            (
                (
                    f'<think>ask</think>ok{CALLS}{CALL}functions.a:0{ARGUMENT}{{"x":1}}{END_CALL}'
                    f'{CALL}functions.b:1{ARGUMENT}{{"n": [1, null]}}{END_CALL}{END_CALLS}<|im_end|>'
                ),
                1,
            ),
        ],
    ),
    "unicode": (
        [user("你好 🙂"), assistant("Привет, été\u0301 👩\u200d🚀")],
        [
            (SYSTEM + USER + "你好 🙂<|im_end|>" + ASSISTANT, 0),
            ("<think></think>Привет, été\u0301 👩\u200d🚀<|im_end|>", 1),
        ],
    ),
    "a user quotes control tokens": (
        [user("a<|im_end|>b<|im_assistant|>c<|im_middle|>d"), assistant("two")],
        [
            (SYSTEM + USER + "a<", 0),
            ("|im_end|>b<", 0),
            ("|im_assistant|>c<", 0),
            ("|im_middle|>d", 0),
            ("<|im_end|>" + ASSISTANT, 0),
            ("<think></think>two<|im_end|>", 1),
        ],
    ),
    "an assistant quotes control tokens": (
        [user("end?"), assistant("it is <|im_end|> here", reasoning_content="say </think>?")],
        [
            (SYSTEM + USER + "end?<|im_end|>" + ASSISTANT, 0),
            ("<think>say <", 1),
            ("/think>?", 1),
            ("</think>it is <", 1),
            ("|im_end|> here", 1),
            ("<|im_end|>", 1),
        ],
    ),
    "content as a list of parts": (
        [
            user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
            assistant([{"type": "text", "text": "three"}]),
        ],
        [(SYSTEM + USER + "one two<|im_end|>" + ASSISTANT, 0), ("<think></think>three<|im_end|>", 1)],
    ),
    "sharegpt's keys": (
        [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}],
        [(SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0), ("<think></think>two<|im_end|>", 1)],
    ),
    "names": (
        [user("one", name="Ann"), assistant("two", name="Bob")],
        [
            (
                SYSTEM + "<|im_user|>Ann<|im_middle|>one<|im_end|><|im_assistant|>Bob<|im_middle|>",
                0,
            ),
            ("<think></think>two<|im_end|>", 1),
        ],
    ),
    "the last turn is the user's": (
        [user("one"), assistant("two"), user("three")],
        [
            (SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0),
            ("<think></think>two<|im_end|>", 1),
            (USER + "three<|im_end|>", 0),
        ],
    ),
    "an empty answer": (
        [user("one"), assistant("")],
        [(SYSTEM + USER + "one<|im_end|>" + ASSISTANT, 0), ("<think></think><|im_end|>", 1)],
    ),
}


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    return make_kimi_k25(tmp_path_factory.mktemp("masks") / "kimi")


@pytest.fixture(scope="module")
def tokenizer(verifier):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(verifier, trust_remote_code=True)


def prepared(tokenizer, folder, rows, length=4096):
    """Rows of a JSON Lines file, loaded and prepared by speculators, in the file's order."""
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    with shim():
        from speculators.data_generation import preprocessing

        raw = preprocessing.load_raw_dataset(str(path), cache_dir=str(folder / "cache"))
        raw = raw[0] if isinstance(raw, tuple) else raw  # a pair since 0.6
        return list(preprocessing.build_eagle3_dataset(raw, tokenizer, max_length=length, num_proc=None))


@pytest.fixture(scope="module")
def rows(tokenizer, tmp_path_factory):
    conversations = [{"conversations": turns} for turns, _ in CASES.values()]
    found = prepared(tokenizer, tmp_path_factory.mktemp("rows"), conversations)
    assert len(found) == len(CASES)
    return dict(zip(CASES, found, strict=True))


def expected(tokenizer, segments):
    ids, mask = [], []
    for text, weight in segments:
        part = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += part
        mask += [weight] * len(part)
    return ids, mask


@pytest.mark.parametrize("case", CASES)
def test_ids_and_mask_are_those_written_by_hand(tokenizer, rows, case):
    ids, mask = expected(tokenizer, CASES[case][1])
    assert rows[case]["input_ids"].tolist() == ids
    assert rows[case]["loss_mask"].tolist() == mask


def test_truncation_inside_an_assistant_turn(tokenizer, rows, tmp_path, caplog):
    case = "thinking of earlier turns, which the template blanks"
    ids, mask = expected(tokenizer, CASES[case][1])
    length = len(ids) - 5
    assert mask[length - 1]
    assert mask[length]
    (row,) = prepared(tokenizer, tmp_path, [{"conversations": CASES[case][0]}], length)
    assert row["input_ids"].tolist() == ids[:length]
    assert row["loss_mask"].tolist() == mask[:length]
    assert f"is cut from {len(ids)} to {length} tokens" in caplog.text


def test_tool_declarations_reach_the_template(tokenizer, tmp_path):
    tools = [{"type": "function", "function": {"name": "get", "parameters": {"city": {"type": "string"}}}}]
    (row,) = prepared(tokenizer, tmp_path, [{"conversations": [user("one"), assistant("two")], "tools": tools}])
    text = tokenizer.decode(row["input_ids"])
    assert text.startswith(f"<|im_system|>tool_declare<|im_middle|>{json.dumps(tools)}<|im_end|>")


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([user([{"type": "image_url", "image_url": {"url": "x"}}])], "turn 1 has a content part of type 'image_url'"),
        ([user("one"), {"role": "critic", "content": "two"}], "turn 2 has the role 'critic'"),
        ([user("one"), assistant("two", tool_calls=[{"name": "get"}])], "turn 2 has a tool call without function.name"),
        ([user("a\ufdd0b")], "it contains a Unicode noncharacter"),
    ],
)
def test_what_cannot_be_kept_is_dropped_with_its_reason(tokenizer, tmp_path, caplog, turns, reason):
    good = {"conversations": [user("one"), assistant("two")]}
    assert len(prepared(tokenizer, tmp_path, [good, {"conversations": turns}])) == 1
    assert reason in caplog.text
    assert "1 of 2 conversations were dropped" in caplog.text


def test_rows_that_are_tokenised_already_pass_through(tokenizer, tmp_path, caplog):
    given = [
        {"input_ids": [5, 6, 7, 8], "loss_mask": [0, 1, 0, 1]},
        {"input_ids": [5, 6], "loss_mask": [0, 1, 1]},
        {"input_ids": [9, 9, 9, 9, 9, 9], "loss_mask": [1, 1, 1, 1, 1, 0]},
    ]
    found = prepared(tokenizer, tmp_path, given, length=5)
    assert [(row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in found] == [
        ([5, 6, 7, 8], [0, 1, 0, 1]),
        ([9, 9, 9, 9, 9], [1, 1, 1, 1, 1]),
    ]
    assert "input_ids has 2 entries, loss_mask 3" in caplog.text


def test_conversations_beside_tokenised_rows(tokenizer, tmp_path):
    given = [{"conversations": [user("one"), assistant("two")]}, {"input_ids": [5, 6], "loss_mask": [0, 1]}]
    found = sorted(len(row["input_ids"]) for row in prepared(tokenizer, tmp_path, given))
    assert found[0] == 2
    assert found[1] > 2
