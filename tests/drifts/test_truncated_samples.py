import json
import logging

import pytest

from speculators_compat.drifts.truncated_samples import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import applies, shim, speculators_is

pytestmark = [pytest.mark.engine, applies(DRIFT)]

TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ message.content }}<|im_end|>{% "
    "endgeneration %}"
    "{%- else -%}{{ message.content }}<|im_end|>{%- endif -%}{%- endfor -%}"
)
TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "word " * 60}]


def test_a_cut_is_counted_and_changes_nothing_else(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(without=DRIFT.id), caplog.at_level(logging.WARNING):
        (before,), _ = prepare(verifier, [TURNS], tmp_path / "a", length=32)
    assert "is cut" not in caplog.text
    with shim(), caplog.at_level(logging.WARNING):
        (after,), _ = prepare(verifier, [TURNS], tmp_path / "b", length=32)
    assert "to 32 tokens" in caplog.text
    assert after["input_ids"].tolist() == before["input_ids"].tolist()
    assert after["loss_mask"].tolist() == before["loss_mask"].tolist()


def test_a_sample_that_just_fits_is_not_counted(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(), caplog.at_level(logging.WARNING):
        (whole,), _ = prepare(verifier, [TURNS], tmp_path / "a", length=4096)
        length = len(whole["input_ids"])
        (row,), _ = prepare(verifier, [TURNS], tmp_path / "b", length=length)
    assert len(row["input_ids"]) == length
    assert "is cut" not in caplog.text


@pytest.mark.parametrize(("off", "is_cut"), [(DRIFT.id, not speculators_is(">=0.4,<0.7")), ("", True)])
def test_length_limit_holds_where_the_template_marks_the_assistant(tmp_path, off, is_cut):
    verifier = make_llama(tmp_path / "llama")
    path = verifier / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
    with shim(without=off):
        dataset, _ = prepare(verifier, [TURNS], tmp_path, length=32)
    (row,) = dataset
    assert (len(row["input_ids"]) == 32) is is_cut
    assert len(row["input_ids"]) == len(row["loss_mask"])
    assert row["loss_mask"].sum() > 0
