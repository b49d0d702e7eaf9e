import pytest

from speculators_compat.drifts.draft_final_norm import DRIFT
from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, verifier_states
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

TOLERANCE = 2e-5  # relative, float32


def error_of_targets(verifier, kind: str) -> float:
    """Relative L2 distance of the draft's targets from the verifier's own logits."""
    config = text_config(str(verifier))
    draft = draft_model(verifier, config, config.vocab_size // 2)
    states, logits = verifier_states(verifier)
    targets = draft.verifier_lm_head(states)
    return float((targets - logits[..., draft.t2d]).norm() / logits[..., draft.t2d].norm())


# Gemma 3 multiplies by one plus the weight.
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_targets_are_the_verifiers_logits(tmp_path, kind):
    verifier = make_model(kind, tmp_path / kind)
    with shim(without=DRIFT.id):
        assert error_of_targets(verifier, kind) > 0.1
    with shim():
        assert error_of_targets(verifier, kind) < TOLERANCE


def test_norm_is_not_saved_and_follows_the_head(tmp_path):
    import torch

    verifier = make_model("llama", tmp_path / "llama")
    with shim():
        draft = draft_model(verifier, text_config(str(verifier)))
    assert not [name for name in draft.state_dict() if "final_norm" in name]
    draft.to(dtype=torch.bfloat16)
    states = torch.randn(1, 3, draft.hidden_size, dtype=torch.bfloat16)
    assert draft.verifier_lm_head(states).dtype == torch.bfloat16
    assert draft.to("meta").verifier_lm_head.final_norm_weight.device.type == "meta"


def test_a_layer_norm_verifier_is_refused():
    from types import SimpleNamespace

    from speculators_compat import UsageError
    from speculators_compat.verifier import norm_offset

    with pytest.raises(UsageError, match="'phi' without rms_norm_eps"):
        norm_offset(SimpleNamespace(model_type="phi", layer_norm_eps=1e-5))
