import pytest

from speculators_compat.drifts.transformers_attention_masks import DRIFT
from tests.support import run_python

pytestmark = pytest.mark.engine


def test_symptom_and_fix(states):
    """Bound to transformers: the import fails without exactly where the probe says that the fix is needed."""
    broken = run_python("import speculators_compat, speculators", {"SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert (DRIFT.symptom in broken.stderr) is (states[DRIFT.id] == "applied")
    assert states[DRIFT.id] in ("applied", "not needed")


def test_the_stand_in_says_what_it_is_for(states):
    if states[DRIFT.id] == "applied":
        code = (
            "import speculators_compat, speculators\n"
            "from transformers.modeling_attn_mask_utils import _prepare_4d_causal_attention_mask as masks\n"
            "masks(None)"
        )
        assert "RuntimeError: EAGLE-1 drafts of speculators need" in run_python(code).stderr
