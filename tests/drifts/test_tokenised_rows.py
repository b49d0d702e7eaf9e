import logging

import pytest

from speculators_compat.drifts.tokenised_rows import DRIFT
from speculators_compat.testing import make_kimi_k25, make_llama
from tests.drafts import prepare_rows
from tests.support import shim, speculators_is

pytestmark = pytest.mark.engine

ROWS = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}, {"input_ids": [8, 9], "loss_mask": [0, 1]}]
SKEWED = {"input_ids": [5, 6], "loss_mask": [0, 1, 1]}
TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def build(verifier, folder, rows, length=256):
    found, _ = prepare_rows(verifier, rows, folder, length=length)
    key = sorted if speculators_is(">=0.7") else list  # which shuffles a second time
    return key((row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in found)


def pairs(*rows):
    return sorted((row["input_ids"], row["loss_mask"]) for row in rows)


def test_symptom_without_and_rows_unchanged_with(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    off = f"{DRIFT.id},dropped_conversations"
    if speculators_is("<0.7"):
        with shim(without=off), caplog.at_level(logging.WARNING), pytest.raises(IndexError):
            build(verifier, tmp_path / "a", ROWS)
        assert DRIFT.symptom in caplog.text
    else:  # which takes such rows, but not one bad one among them
        with shim(without=off), pytest.raises(ValueError, match="row shape mismatch"):
            build(verifier, tmp_path / "a", [*ROWS, SKEWED])
    with shim(), caplog.at_level(logging.WARNING):
        assert sorted(build(verifier, tmp_path / "b", [*ROWS, SKEWED])) == pairs(*ROWS)
    assert "input_ids has 2 entries, loss_mask 3" in caplog.text


def test_a_cut_is_counted(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(), caplog.at_level(logging.WARNING):
        found = build(verifier, tmp_path, ROWS, length=2)
    assert sorted(found) == pairs(ROWS[1], {"input_ids": [5, 6], "loss_mask": [0, 1]})
    assert "is cut from 3 to 2 tokens" in caplog.text


@pytest.mark.parametrize("make", [make_llama, make_kimi_k25])
def test_conversations_beside_rows_keep_their_masks(tmp_path, make):
    verifier = make(tmp_path / "model")
    with shim():
        alone = build(verifier, tmp_path / "a", [{"conversations": TURNS}])
        beside = build(verifier, tmp_path / "b", [{"conversations": TURNS}, ROWS[0]])
    assert sorted(beside) == sorted([*alone, *pairs(ROWS[0])])
    assert sum(alone[0][1])


def test_lengths_are_there_where_the_release_has_them(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    with shim():
        found, _ = prepare_rows(verifier, ROWS, tmp_path)
    assert all(("seq_len" in row) == speculators_is(">=0.5") for row in found)
    assert all(int(row.get("seq_len", len(row["input_ids"]))) == len(row["input_ids"]) for row in found)


def test_a_row_with_a_wrong_mask_is_named(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    bad = {"input_ids": [5, 6], "loss_mask": [0, 2]}
    with shim(), caplog.at_level(logging.WARNING):
        assert len(build(verifier, tmp_path, [*ROWS, bad])) == 2
    assert "loss_mask must hold 0 and 1 only" in caplog.text
