import pytest

from speculators_compat.drifts.transformers_torch_name import DRIFT
from tests.support import run_python

pytestmark = pytest.mark.engine


def test_symptom_and_fix(states):
    """Bound to transformers: the import fails without exactly where the probe says that the fix is needed."""
    broken = run_python("import speculators_compat, speculators", {"SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert (DRIFT.symptom in broken.stderr) is (states[DRIFT.id] == "applied")
    assert states[DRIFT.id] in ("applied", "not needed")
