from types import SimpleNamespace

import pytest

from speculators_compat.drifts.cpu_preloaded_libraries import DRIFT, VARIABLE, _Os, all_named


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator, monkeypatch, capfd):
    if needed("cpu_preloaded_libraries"):
        monkeypatch.delenv(VARIABLE, raising=False)
        done = run_generator(DRIFT.id)
        assert done.lengths is None
        out, err = capfd.readouterr()
        assert DRIFT.symptom in out + err + done.error  # the worker's own message
        done = run_generator()
        assert done.lengths, done.error


@pytest.mark.parametrize("value", [None, "", "/lib/libtcmalloc_minimal.so.4", "/lib/libiomp5.so:/lib/libtcmalloc.so.4"])
def test_both_names_are_found_and_what_was_there_stays(value):
    found = all_named(value)
    assert "libtcmalloc" in found
    assert "libiomp" in found
    assert found.startswith(value or "")


def test_only_this_variable_changes_and_writing_reaches_the_environment():
    environment = {VARIABLE: "", "OTHER": "1"}
    seen = _Os(SimpleNamespace(environ=environment, getpid=lambda: 7))
    seen.environ["NEW"] = "2"
    assert environment == {VARIABLE: "", "OTHER": "1", "NEW": "2"}
    assert seen.environ.get("OTHER") == "1"
    assert seen.environ.get("ABSENT") is None
    assert seen.environ.get(VARIABLE) == "libtcmalloc libiomp"
    assert seen.getpid() == 7
