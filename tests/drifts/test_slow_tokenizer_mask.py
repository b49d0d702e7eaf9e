import json
import logging

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.slow_tokenizer_mask import DRIFT
from speculators_compat.testing import make_kimi_k25
from tests.drafts import prepare
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

CONVERSATION = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "first answer"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "second answer"},
]
#: Ours, and that of 0.7.
NOTHING_LEFT = "must survive preparation|No samples remain"
TRAINED = ["<think></think>first answer<|im_end|>", "<think></think>second answer<|im_end|>"]


def trained_texts(tokenizer, row) -> list[str]:
    """The text of each run of trainable tokens."""
    texts, previous = [], 0
    for token, weight in zip(row["input_ids"].tolist(), row["loss_mask"].tolist(), strict=True):
        if weight and not previous:
            texts.append("")
        if weight:
            texts[-1] += tokenizer.decode([token])
        previous = weight
    return texts


def test_symptom_without_and_every_turn_with(tmp_path, caplog):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim(without=DRIFT.id), caplog.at_level(logging.WARNING), pytest.raises(ValueError, match=NOTHING_LEFT):
        prepare(verifier, [CONVERSATION] * 3, tmp_path / "a")
    # transformers 5 ignores the request, and the answer lacks the key.
    assert DRIFT.symptom in caplog.text or "'offset_mapping'" in caplog.text
    with shim():
        dataset, tokenizer = prepare(verifier, [CONVERSATION] * 3, tmp_path / "b")
    assert len(dataset) == 3
    for row in dataset:
        assert trained_texts(tokenizer, row) == TRAINED


def test_in_two_processes(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim():
        dataset, tokenizer = prepare(verifier, [CONVERSATION] * 8, tmp_path, processes=2)
    assert [trained_texts(tokenizer, row) for row in dataset] == [TRAINED] * 8


def test_ids_and_mask_are_cut_together(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim():
        whole, _ = prepare(verifier, [CONVERSATION], tmp_path / "a")
        cut, _ = prepare(verifier, [CONVERSATION], tmp_path / "b", length=40)
    for column in ("input_ids", "loss_mask"):
        assert len(whole[0][column]) > 40
        assert cut[0][column].tolist() == whole[0][column].tolist()[:40]


def test_cache_of_a_run_without_is_not_reused(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim(without=f"{DRIFT.id},dropped_conversations"), pytest.raises((IndexError, ValueError)):
        prepare(verifier, [CONVERSATION], tmp_path)
    with shim():
        dataset, _ = prepare(verifier, [CONVERSATION], tmp_path)
    assert len(dataset) == 1


def test_tokenizer_that_marks_no_turns_is_refused(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    path = verifier / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text().replace("<|im_middle|>", "<|im_other|>"))))
    with shim(), pytest.raises(UsageError, match=r"TikTokenTokenizer without <\|im_middle\|>"):
        prepare(verifier, [CONVERSATION], tmp_path)


def test_pattern_that_needs_offsets_is_refused(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    with shim(), pytest.raises(UsageError, match="Leave assistant_pattern out"):
        prepare(verifier, [CONVERSATION], tmp_path, assistant_pattern="a(.*)b")


def test_conversation_that_cannot_be_rendered_is_reported(tmp_path, caplog):
    verifier = make_kimi_k25(tmp_path / "kimi")
    bad = [{"role": "nobody", "content": "text"}]
    with shim(), caplog.at_level(logging.WARNING):
        dataset, _ = prepare(verifier, [CONVERSATION, bad], tmp_path)
    assert len(dataset) == 1
    assert "is dropped: ValueError: turn 1 has the role 'nobody'" in caplog.text
    assert "1 of 2 conversations were dropped" in caplog.text
