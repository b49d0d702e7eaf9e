import pytest

from speculators_compat.drifts.step_timer_without_accelerator import DRIFT
from tests.drifts.trained import trained
from tests.support import applies

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_timed_steps_with(training_run, tmp_path):
    with pytest.raises(RuntimeError) as error:
        trained(training_run, tmp_path / "a", without=DRIFT.id)
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    assert trained(training_run, tmp_path / "b")["steps"] > 0
