from functools import partial

import pytest

from speculators_compat.drifts.loaded_norm_offset import DRIFT
from speculators_compat.testing import make_model
from tests.drafts import check_targets, untrained
from tests.support import applies, speculators_is

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@pytest.mark.parametrize(("kind", "wrong_without"), [("gemma3", True), ("llama", False)])
def test_targets_are_the_verifiers_logits(tmp_path, kind, wrong_without):
    check_targets(untrained, make_model(kind, tmp_path / kind), DRIFT.id, wrong_without=wrong_without)


@pytest.mark.skipif(
    not speculators_is(">=0.6"),
    reason="block drafts of 0.5 do not norm: https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/models/dflash/core.py#L35",
)
def test_targets_of_a_block_draft(tmp_path):
    verifier = make_model("gemma3", tmp_path / "gemma3")
    check_targets(partial(untrained, algorithm="dflash"), verifier, DRIFT.id, wrong_without=True)
