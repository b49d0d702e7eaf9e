import logging

import pytest

from speculators_compat.drifts.null_turn_fields import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import shim

pytestmark = pytest.mark.engine

# What datasets before 5 makes of turns with different keys; datasets 5 keeps them apart.
TURNS = [
    {"from": None, "value": None, "role": "user", "content": "one"},
    {"from": None, "value": None, "role": "assistant", "content": "an answer"},
]


def test_symptom_without_and_turns_kept_with(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    off = f"{DRIFT.id},dropped_conversations"
    with shim(without=off), caplog.at_level(logging.WARNING), pytest.raises(IndexError):
        prepare(verifier, [TURNS], tmp_path / "a")
    assert "Unknown role 'None', skipping turn" in caplog.text
    with shim():
        dataset, tokenizer = prepare(verifier, [TURNS], tmp_path / "b")
    (row,) = dataset
    assert tokenizer.decode(row["input_ids"][row["loss_mask"].bool()]) == "an answer"
