"""vLLM 0.33 has no CPU build: stand-ins for its two modules show the symptom and the fix."""

import sys
from types import ModuleType

import pytest

from speculators_compat import patching
from speculators_compat.drifts.kv_cache_planning import DRIFT, NAMES, NEW, OLD


@pytest.fixture
def moved(monkeypatch):
    modules = {name: ModuleType(name) for name in (OLD, NEW)}
    for name in NAMES:
        setattr(modules[NEW], name, object())
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def test_names_are_found_where_they_were_and_go_again(moved):
    assert DRIFT.probe()
    assert not any(hasattr(moved[OLD], name) for name in NAMES)
    journal = patching.apply(DRIFT.sites, DRIFT.id)
    assert all(getattr(moved[OLD], name) is getattr(moved[NEW], name) for name in NAMES)
    patching.restore(journal)
    assert DRIFT.probe()


@pytest.mark.engine
def test_it_is_not_needed_before(needed):
    assert not needed("kv_cache_planning")
