"""All or nothing, reversible to the identical object, and no name added or replaced by accident."""

from __future__ import annotations

import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculators_compat import patching
from speculators_compat.drift import MISSING, substitute, supply, wrap


class Parent:
    attribute = "plain"

    def method(self):
        return "method"

    @staticmethod
    def static():
        return "static"

    @classmethod
    def klass(cls):
        return cls.__name__

    @property
    def prop(self):
        return "property"


class Child(Parent):
    pass


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("fake_upstream")
    made.function = lambda: "function"
    made.Parent = type("Parent", (), dict(Parent.__dict__))
    made.Child = type("Child", (made.Parent,), {})
    monkeypatch.setitem(sys.modules, "fake_upstream", made)
    return made


def _loud(wrapped, instance, args, kwargs):
    return f"patched {wrapped(*args, **kwargs)}"


def _snapshot(module):
    return {
        name: (dict(vars(owner)) if isinstance(owner, type) else owner)
        for name, owner in vars(module).items()
        if not name.startswith("__")
    }


NAMES = ["function", "Parent.method", "Parent.static", "Parent.klass", "Child.method", "Child.static", "Child.klass"]


@pytest.mark.parametrize("path", NAMES)
def test_undo_restores_the_identical_object(module, path):
    before = _snapshot(module)
    journal = patching.apply([wrap(f"fake_upstream:{path}", _loud)], "one")
    owner = module if "." not in path else getattr(module, path.split(".")[0])
    called = getattr(owner() if isinstance(owner, type) else owner, path.split(".")[-1])()
    assert called.startswith("patched ")
    patching.restore(journal)
    after = _snapshot(module)
    assert after.keys() == before.keys()
    for name, value in before.items():
        if isinstance(value, dict):
            assert after[name].keys() == value.keys(), "an inherited attribute must not stay behind as an own one"
            assert all(after[name][key] is value[key] for key in value if key not in ("__dict__", "__weakref__"))
        else:
            assert after[name] is value


@given(order=st.permutations(NAMES))
def test_stacked_patches_in_any_order_undo_to_the_start(order):
    made = types.ModuleType("fake_stack")
    made.function = lambda: "function"
    made.Parent = type("Parent", (), dict(Parent.__dict__))
    made.Child = type("Child", (made.Parent,), {})
    sys.modules["fake_stack"] = made
    before = {path: _raw(made, path) for path in NAMES}
    journals = [patching.apply([wrap(f"fake_stack:{path}", _loud)], path) for path in [*order, *order]]
    for journal in reversed(journals):
        patching.restore(journal)
    assert all(_raw(made, path) is before[path] for path in NAMES)


def _raw(module, path):
    *parents, name = path.split(".")
    owner = getattr(module, parents[0]) if parents else module
    return vars(owner).get(name, MISSING)


def test_a_missing_site_leaves_every_other_one_untouched(module):
    before = _snapshot(module)
    sites = [wrap("fake_upstream:function", _loud), wrap("fake_upstream:Parent.renamed", _loud)]
    with pytest.raises(patching.SiteError, match=r"Parent\.renamed does not exist"):
        patching.apply(sites, "one")
    assert module.function is before["function"]


def test_a_factory_that_raises_leaves_nothing_half_applied(module):
    before = module.function

    def broken(original):
        raise LookupError("planted")

    with pytest.raises(LookupError, match="planted"):
        patching.apply([wrap("fake_upstream:function", _loud), substitute("fake_upstream:Parent.method", broken)], "x")
    assert module.function is before


def test_a_write_that_fails_rolls_back(module):
    class Sealed(type):
        def __setattr__(cls, name, value):
            raise TypeError("sealed")

    module.Sealed = Sealed("Sealed", (), {"method": lambda self: 1})
    before = module.function
    with pytest.raises(patching.SiteError, match="sealed"):
        patching.apply([wrap("fake_upstream:function", _loud), wrap("fake_upstream:Sealed.method", _loud)], "x")
    assert module.function is before


def test_supply_refuses_a_name_that_is_there(module):
    with pytest.raises(patching.SiteError, match="already exists"):
        patching.apply([supply("fake_upstream:function", lambda _: 1)], "x")
    with pytest.raises(patching.SiteError, match="already exists"):
        patching.apply([supply("fake_upstream:Child.method", lambda _: 1)], "x")


def test_supply_adds_and_undo_removes(module):
    journal = patching.apply(
        [supply("fake_upstream:Child.close", lambda missing: lambda self: missing is MISSING)], "x"
    )
    assert module.Child().close() is True
    patching.restore(journal)
    assert not hasattr(module.Child, "close")


def test_two_substitutions_of_one_attribute_name_the_first_owner(module):
    journal = patching.apply([substitute("fake_upstream:function", lambda _: 1)], "first_drift")
    with pytest.raises(patching.SiteError, match="already substituted by 'first_drift'"):
        patching.apply([substitute("fake_upstream:function", lambda _: 2)], "second_drift")
    patching.restore(journal)
    patching.restore(patching.apply([substitute("fake_upstream:function", lambda _: 2)], "second_drift"))


def test_one_drift_may_not_name_an_attribute_twice(module):
    with pytest.raises(patching.SiteError, match="twice"):
        patching.apply([wrap("fake_upstream:function", _loud), wrap("fake_upstream:function", _loud)], "x")


def test_a_module_that_is_not_imported_is_said_so():
    with pytest.raises(patching.SiteError, match="not imported"):
        patching.apply([wrap("no_such_module:x", _loud)], "x")


def test_what_others_changed_since_is_theirs(module, caplog):
    journal = patching.apply([wrap("fake_upstream:function", _loud)], "one")
    theirs = module.function = lambda: "theirs"
    patching.restore(journal)
    assert module.function is theirs
    assert "changed by other code" in caplog.text
