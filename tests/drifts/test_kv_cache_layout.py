import pytest

from speculators_compat.drifts.kv_cache_layout import DRIFT

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("kv_cache_layout"):
        assert DRIFT.symptom in run_generator(DRIFT.id).error
