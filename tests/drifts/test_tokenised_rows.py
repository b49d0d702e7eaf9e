import json
import logging

import pytest

from speculators_compat.drifts.tokenised_rows import DRIFT
from speculators_compat.testing import make_llama
from tests.support import shim

pytestmark = pytest.mark.engine

ROWS = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}, {"input_ids": [8, 9], "loss_mask": [0, 1]}]


def build(verifier, folder):
    from speculators.data_generation import preprocessing
    from transformers import AutoTokenizer

    folder.mkdir()
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    raw = preprocessing.load_raw_dataset(str(path), cache_dir=str(folder))
    tokenizer = AutoTokenizer.from_pretrained(verifier)
    return list(preprocessing.build_eagle3_dataset(raw, tokenizer, num_proc=None))


def test_symptom_without_and_rows_unchanged_with(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    off = f"{DRIFT.id},dropped_conversations"
    with shim(without=off), caplog.at_level(logging.WARNING):
        assert len(build(verifier, tmp_path / "a")) == 0
    assert DRIFT.symptom in caplog.text
    with shim():
        found = build(verifier, tmp_path / "b")
    assert [{name: row[name].tolist() for name in row} for row in found] == ROWS
