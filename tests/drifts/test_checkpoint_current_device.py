import pytest

from speculators_compat.drifts.checkpoint_current_device import DRIFT
from tests.drafts import assert_resumes
from tests.drifts.trained import trained
from tests.support import applies, newer_trainer, older_trainer, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@older_trainer
def test_symptom_without_and_resume_with(tmp_path):
    with shim(without=DRIFT.id), pytest.raises(RuntimeError) as error:
        assert_resumes(tmp_path / "a")
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    with shim():
        assert_resumes(tmp_path / "b")


@newer_trainer
def test_symptom_without_and_a_second_epoch_with(training_run, tmp_path):
    with pytest.raises(RuntimeError) as error:
        trained(training_run, tmp_path / "a", without=DRIFT.id, again=2)
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    assert trained(training_run, tmp_path / "b", again=2)["checkpoint"].endswith("/1")
