import pytest

from speculators_compat.drifts.request_eos_token_id import DRIFT

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("request_eos_token_id"):
        assert DRIFT.symptom in run_generator(DRIFT.id).error
