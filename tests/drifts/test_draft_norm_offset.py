import pytest

from speculators_compat.drifts.draft_norm_offset import DRIFT
from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config
from tests.drafts import check_targets, draft_model
from tests.support import applies

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def draft(verifier):
    config = text_config(str(verifier))
    return draft_model(verifier, config, config.vocab_size // 2)


@pytest.mark.parametrize(("kind", "wrong_without"), [("gemma3", True), ("llama", False)])
def test_targets_are_the_verifiers_logits(tmp_path, kind, wrong_without):
    check_targets(draft, make_model(kind, tmp_path / kind), DRIFT.id, wrong_without=wrong_without)
