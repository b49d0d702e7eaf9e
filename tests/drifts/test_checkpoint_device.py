import pytest

from speculators_compat.drifts.checkpoint_device import DRIFT
from tests.drafts import assert_resumes
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_resume_with(tmp_path):
    with shim(without=DRIFT.id), pytest.raises(RuntimeError) as error:
        assert_resumes(tmp_path / "a")
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    with shim():
        assert_resumes(tmp_path / "b")
