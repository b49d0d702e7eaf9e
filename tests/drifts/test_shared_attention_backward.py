import pytest

from speculators_compat.activation import outcomes
from speculators_compat.drifts.shared_attention_backward import DRIFT
from tests.drifts.trained import trained
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_gradients_with(training_run, tmp_path):
    """Bound to torch: training fails without exactly where the probe says that the fix is needed."""
    with shim():
        import speculators.models.attention  # noqa: F401

        needed = next(item.state.value for item in outcomes() if item.drift.id == DRIFT.id) == "applied"
    if needed:
        with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            trained(training_run, tmp_path / "a", without=DRIFT.id)
    assert trained(training_run, tmp_path / "b")["steps"] > 0
