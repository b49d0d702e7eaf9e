"""What a failure says: the note under a traceback, and the name of vLLM that a module of speculators misses."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from speculators_compat import UsageError, notes, versions
from speculators_compat.drift import DriftError, wrap
from speculators_compat.patching import apply, restore
from speculators_compat.versions import Installed

notes_are_shown = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="notes: https://docs.python.org/3/library/exceptions.html#BaseException.add_note"
)


@pytest.fixture
def future(monkeypatch):
    """vLLM 0.99.0 and speculators 0.4.0.1, as far as versions go."""
    found = {name: Installed(name, name, number) for name, number in (("vllm", "0.99.0"), ("speculators", "0.4.0.1"))}
    monkeypatch.setattr(versions, "installed", found.get)


@pytest.fixture
def module(request, monkeypatch):
    """A foreign module whose function raises."""
    name = "a_foreign_module"
    created = type(sys)(name)
    exec("def fail():\n    raise TypeError('missing 1 required argument')", vars(created))
    monkeypatch.setitem(sys.modules, name, created)
    return created


@notes_are_shown
def test_the_note_names_versions_and_every_drift_on_the_way(module, future):
    def through(wrapped, instance, args, kwargs):
        return wrapped(*args, **kwargs)

    journals = [apply([wrap("a_foreign_module:fail", through)], drift) for drift in ("inner_drift", "outer_drift")]
    try:
        with pytest.raises(TypeError) as caught:
            module.fail()
    finally:
        for journal in reversed(journals):
            restore(journal)
    last = "".join(traceback.format_exception(caught.value)).splitlines()[-1]
    assert "inner_drift, outer_drift" in last
    assert "vLLM 0.99.0" in last
    assert "newer than any tested release" in last
    assert "speculators-compat doctor" in last
    assert len(caught.value.__notes__) == 1


@pytest.mark.parametrize("error", [UsageError("a", "b", "c"), DriftError("id", "a", "b", "c")])
def test_errors_of_our_own_say_everything_themselves(error):
    notes.add(error, "some_drift")
    assert not hasattr(error, "__notes__")


def test_an_exception_that_takes_no_attribute_is_left_alone():
    class SlottedError(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    notes.add(SlottedError(), "some_drift")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch):
    """A speculators and a vLLM of a few lines, importable through the naming finder."""

    def write(**files: str) -> None:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.write_text(text)

    for package in ("speculators", "vllm"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    before = {name for name in sys.modules if name.partition(".")[0] in ("speculators", "vllm")}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [notes.NamingFinder(), *sys.meta_path])
    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in ("speculators", "vllm")]:
        del sys.modules[name]


def test_a_name_that_vllm_no_longer_has_is_named(packages, future):
    packages(vllm__planning="def renamed(): ...", speculators__generator="from vllm.planning import plan")
    with pytest.raises(ImportError) as caught:
        import speculators.generator  # noqa: F401
    message = str(caught.value)
    assert isinstance(caught.value, notes.MovedNameError)
    assert message.startswith("speculators.generator needs a name that this vLLM does not have")
    for part in ("cannot import name 'plan' from 'vllm.planning'", "vLLM 0.99.0", "speculators-compat audit"):
        assert part in message
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_module_that_vllm_no_longer_has_is_named(packages, future):
    packages(speculators__generator="import vllm.hashing")
    with pytest.raises(notes.MovedNameError, match=r"No module named 'vllm\.hashing'"):
        import speculators.generator  # noqa: F401


@pytest.mark.parametrize(
    "files",
    [
        {"speculators__generator": "import no_such_module_of_anybody"},
        {"vllm__planning": "import no_such_module_of_anybody", "speculators__generator": "import vllm.planning"},
        {"vllm__planning": "import vllm.absent", "speculators__generator": "import vllm.planning"},
    ],
    ids=["not vLLM's", "what vLLM needs is missing", "vLLM is broken inside"],
)
def test_other_import_errors_pass_as_they_are(packages, future, files):
    packages(**files)
    with pytest.raises(ModuleNotFoundError):
        import speculators.generator  # noqa: F401
