import pytest

from speculators_compat.drifts.draft_norm_offset import DRIFT
from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, error_of_targets
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def draft(verifier):
    config = text_config(str(verifier))
    return draft_model(verifier, config, config.vocab_size // 2)


@pytest.mark.parametrize(("kind", "wrong_without"), [("gemma3", True), ("llama", False)])
def test_targets_are_the_verifiers_logits(tmp_path, kind, wrong_without):
    verifier = make_model(kind, tmp_path / kind)
    with shim(without=DRIFT.id):
        assert (error_of_targets(draft(verifier), verifier) > 0.1) is wrong_without
    with shim():
        assert error_of_targets(draft(verifier), verifier) < 2e-5
