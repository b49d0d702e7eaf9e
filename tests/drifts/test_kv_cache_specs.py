from types import SimpleNamespace

import pytest

from speculators_compat.drifts.kv_cache_specs import _with_specs


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("kv_cache_specs"):
        done = run_generator("kv_cache_specs")
        assert "missing 1 required positional argument: 'kv_cache_specs'" in done.error


def test_each_layer_has_its_groups_spec():
    groups = [
        SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=1),
        SimpleNamespace(layer_names=["c"], kv_cache_spec=2),
    ]
    passed = _with_specs(lambda **kwargs: kwargs["kv_cache_specs"], None, (), {"kv_cache_groups": groups})
    assert passed == {"a": 1, "b": 1, "c": 2}


def test_specs_that_are_given_stay():
    assert _with_specs(lambda **kwargs: kwargs, None, (), {"kv_cache_specs": "given"}) == {"kv_cache_specs": "given"}
