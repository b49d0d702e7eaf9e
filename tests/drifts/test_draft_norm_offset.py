import pytest

from speculators_compat.drifts.draft_norm_offset import DRIFT
from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, verifier_states
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def error_of_targets(verifier) -> float:
    config = text_config(str(verifier))
    draft = draft_model(verifier, config, config.vocab_size // 2)
    states, logits = verifier_states(verifier)
    targets = draft.verifier_lm_head(draft.verifier_norm(states))
    return float((targets - logits[..., draft.t2d]).norm() / logits[..., draft.t2d].norm())


@pytest.mark.parametrize(("kind", "wrong_without"), [("gemma3", True), ("llama", False)])
def test_targets_are_the_verifiers_logits(tmp_path, kind, wrong_without):
    verifier = make_model(kind, tmp_path / kind)
    with shim(without=DRIFT.id):
        assert (error_of_targets(verifier) > 0.1) is wrong_without
    with shim():
        assert error_of_targets(verifier) < 2e-5
