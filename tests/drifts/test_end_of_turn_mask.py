import pytest

from speculators_compat.drifts.end_of_turn_mask import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

TURNS = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "an answer"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "the other"},
]


def trained(folder, verifier, without=""):
    with shim(without=without):
        (row,), tokenizer = prepare(verifier, [TURNS], folder)
    return tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])


def test_end_of_turn_is_left_out_without_and_trained_with(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    assert trained(tmp_path / "a", verifier, DRIFT.id) == "an answerthe other"
    assert trained(tmp_path / "b", verifier) == "an answer<|im_end|>the other<|im_end|>"
