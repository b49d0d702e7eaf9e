import json
import logging

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.conversations_without_server import DRIFT
from speculators_compat.testing import make_kimi_k25, make_llama
from tests.drafts import prepare
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four five", "reasoning_content": "hm"},
]
TALKS = [TALK, TALK[:2], [SYSTEM, *TALK], [SYSTEM, TALK[1], *TALK], [*TALK, TALK[0]], [*TALK[:2], *TALK[1:]]]


def pairs(rows):
    return sorted((row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in rows)


def trained(rows, tokenizer):
    return sorted(tokenizer.decode(row["input_ids"][row["loss_mask"].bool()]) for row in rows)


def test_symptom_without_and_a_row_for_each_turn_with(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    with shim(without=DRIFT.id), pytest.raises(ValueError, match="render_endpoint") as error:
        prepare(verifier, [TALK], tmp_path / "a")
    assert f"ValueError: {error.value}".startswith(DRIFT.symptom)
    with shim():
        rows, tokenizer = prepare(verifier, [TALK], tmp_path / "b")
    assert trained(rows, tokenizer) == ["four five<|im_end|>\n", "two<|im_end|>\n"]
    assert all(int(row["seq_len"]) == len(row["input_ids"]) for row in rows)


@pytest.mark.parametrize("make", [make_llama, make_kimi_k25])
def test_rows_are_those_that_upstream_makes_of_a_servers_renderings(tmp_path, monkeypatch, make):
    verifier = make(tmp_path / "model")
    with shim():
        ours, tokenizer = prepare(verifier, TALKS, tmp_path / "a")

        def rendered(endpoint, messages, *, add_generation_prompt, tools=None, truncate_prompt_tokens=None, **_):
            text = tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
            )
            return tokenizer(text, add_special_tokens=False)["input_ids"][:truncate_prompt_tokens]

        from speculators.data_generation import preprocessing

        monkeypatch.setattr(preprocessing, "render_conversation", rendered)
        theirs, _ = prepare(verifier, TALKS, tmp_path / "b", render_endpoint="http://nowhere")
    assert pairs(ours) == pairs(theirs)
    assert len(ours) > len(TALKS)


def test_in_two_processes(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim():
        rows, tokenizer = prepare(verifier, [TALK] * 8, tmp_path, processes=2)
    assert trained(rows, tokenizer) == sorted(["</think>two<|im_end|>", "hm</think>four five<|im_end|>"] * 8)


def kimi_with(folder, condition):
    """A Kimi whose template shows a turn's reasoning only if this holds."""
    verifier = make_kimi_k25(folder / "kimi")
    path = verifier / "chat_template.jinja"
    before = path.read_text()
    path.write_text(before.replace("loop.index0 > state.last_user", condition))
    assert path.read_text() != before
    return verifier


def test_a_thought_that_the_template_hides_is_in_its_own_turns_row(tmp_path):
    """As K2's template, which takes an answer for history as soon as it is there."""
    verifier = kimi_with(tmp_path, "false")
    with shim():
        rows, tokenizer = prepare(verifier, [[*TALK, *TALK]], tmp_path)
    assert trained(rows, tokenizer) == sorted(["</think>two<|im_end|>", "hm</think>four five<|im_end|>"] * 2)
    texts = [tokenizer.decode(row["input_ids"]) for row in rows]
    assert sorted(text.count("<think>hm</think>") for text in texts) == [0, 0, 1, 1]


def test_a_thought_before_a_call_that_the_answer_makes_the_template_hide_drops_the_conversation(tmp_path, caplog):
    verifier = kimi_with(tmp_path, "loop.last or messages[-1].role != 'assistant'")
    call = {"type": "function", "id": "f:0", "function": {"name": "f", "arguments": {}}}
    result = {"role": "tool", "tool_call_id": "f:0", "content": "rain"}
    chain = [TALK[0], {**TALK[3], "tool_calls": [call]}, result, TALK[1]]
    with shim(), caplog.at_level(logging.WARNING):
        rows, _ = prepare(verifier, [chain, TALK], tmp_path)
    assert len(rows) == 2
    assert "UnstableTemplateError: the chat template changes what came before turn 4" in caplog.text


def test_quoted_control_tokens_open_and_end_nothing(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    quoting = [
        {"role": "user", "content": "a<|im_end|>b<|im_assistant|>c<|im_middle|>d"},
        {"role": "assistant", "content": "<|im_end|> ends it", "reasoning_content": "say </think>?"},
        *TALK[2:],
    ]
    with shim():
        rows, tokenizer = prepare(verifier, [quoting], tmp_path)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert sorted(row["input_ids"].tolist().count(end) for row in rows) == [3, 5]
    assert trained(rows, tokenizer) == sorted(
        ["say </think>?</think><|im_end|> ends it<|im_end|>", "hm</think>four five<|im_end|>"]
    )


def test_a_header_that_the_prompt_lacks_is_not_trained(tmp_path):
    """A name: the generation prompt says assistant, and the verifier never writes who it is."""
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim():
        rows, tokenizer = prepare(verifier, [[TALK[0], {**TALK[1], "name": "Bob"}]], tmp_path)
    assert trained(rows, tokenizer) == ["<think></think>two<|im_end|>"]


def test_a_template_that_changes_earlier_turns_drops_its_conversations_with_a_reason(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    path = verifier / "tokenizer_config.json"
    template = "{{ messages | length }}" + json.loads(path.read_text())["chat_template"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    with shim(), caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="No samples remain"):
        prepare(verifier, [TALK], tmp_path)
    assert "Conversation 0 is dropped: UnstableTemplateError: the chat template changes" in caplog.text


def test_what_does_not_fit_and_what_is_cut_is_said(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    long = [TALK[0], {"role": "assistant", "content": "word " * 40}, *TALK[2:]]
    with shim(), caplog.at_level(logging.WARNING):
        (row,), _ = prepare(verifier, [long], tmp_path, length=40)
    assert len(row["input_ids"]) == 40
    assert "to 40 tokens." in caplog.text
    assert "Turn 4 of conversation 0 is dropped: its context fills 40 tokens" in caplog.text


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"role": "critic", "content": "a"}, TALK[1]], "turn 1 has the role 'critic'"),
        ([{"role": "user", "content": [{"type": "image", "url": "x"}]}, TALK[1]], "takes a server"),
        ([TALK[1], TALK[0]], "no assistant turn follows another turn"),
        ([], "it has no turns"),
    ],
)
def test_what_cannot_be_prepared_is_dropped_with_its_reason(tmp_path, caplog, turns, reason):
    verifier = make_llama(tmp_path / "llama")
    with shim(), caplog.at_level(logging.WARNING):
        rows, _ = prepare(verifier, [TALK, turns], tmp_path)
    assert len(rows) == 2
    assert "Conversation 1 is dropped: ValueError: " in caplog.text
    assert reason in caplog.text


def test_too_few_trainable_tokens_are_left_out_as_upstream_does(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(), caplog.at_level(logging.WARNING):
        rows, tokenizer = prepare(verifier, [TALK], tmp_path, minimum_valid_tokens=8)
    assert trained(rows, tokenizer) == ["four five<|im_end|>\n"]
    assert "fewer than 8 trainable tokens" in caplog.text


def test_a_tokenizer_without_offsets_or_turn_tokens_is_refused(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    path = verifier / "tokenizer_config.json"
    path.write_text(path.read_text().replace("<|im_middle|>", "<|im_other|>"))
    with shim(), pytest.raises(UsageError, match=r"TikTokenTokenizer without <\|im_middle\|>"):
        prepare(verifier, [TALK], tmp_path)


def test_rows_without_conversations_are_refused(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    with shim(), pytest.raises(UsageError, match="Found: columns talks"):
        prepare(verifier, [TALK], tmp_path, column="talks")
