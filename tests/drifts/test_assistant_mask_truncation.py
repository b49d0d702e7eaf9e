import json

import pytest

from speculators_compat.drifts.assistant_mask_truncation import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ message.content }}<|im_end|>{% "
    "endgeneration %}"
    "{%- else -%}{{ message.content }}<|im_end|>{%- endif -%}{%- endfor -%}"
)
TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "word " * 60}]


@pytest.mark.parametrize(("off", "is_cut"), [(DRIFT.id, False), ("", True)])
def test_length_limit_holds(tmp_path, off, is_cut):
    verifier = make_llama(tmp_path / "llama")
    path = verifier / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
    with shim(without=off):
        dataset, _ = prepare(verifier, [TURNS], tmp_path, length=32)
    (row,) = dataset
    assert (len(row["input_ids"]) == 32) is is_cut
    assert len(row["input_ids"]) == len(row["loss_mask"])
    assert row["loss_mask"].sum() > 0
