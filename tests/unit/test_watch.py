"""The look at the newest vLLM: which release, what is new, which exit code."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from speculators_compat import docs, matrix
from speculators_compat.audit import fetch
from speculators_compat.audit.sources import FolderSource
from speculators_compat.drift import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """tools/watch.py on made-up sources: the base fits, 9.0.0 lost a name, 9.1.0 has it again."""
    spec = importlib.util.spec_from_file_location("watch", ROOT / "tools" / "watch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = {
        ("speculators", "1"): "from vllm.config import Config, Other\n",
        ("vllm", matrix.newest()): "class Config: ...\n",
        ("vllm", "9.0.0"): "",
        ("vllm", "9.1.0"): "class Config: ...\nclass Other: ...\n",
    }

    def source(package, release):
        if (package, release) not in files:
            raise UsageError("on the index", release, "Name another.")
        folder = tmp_path / f"{package}-{release}" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
        (folder / ("config.py" if package == "vllm" else "caller.py")).write_text(files[package, release])
        return FolderSource(package, folder.parent, f"{package} {release}", release)

    monkeypatch.setattr(module, "fetch", source)
    monkeypatch.setattr(module, "callers", lambda: ["1"])
    monkeypatch.setattr(module, "RECORDS", tmp_path / "audited.json")
    (tmp_path / "audited.json").write_text('{"9.10.0": {}}')

    def run(*arguments, newest="9.0.0"):
        monkeypatch.setattr(module, "newest", lambda package: newest)
        monkeypatch.setattr("sys.argv", ["watch.py", *arguments])
        return module.main()

    return SimpleNamespace(run=run, records=tmp_path / "audited.json")


def test_a_lost_name_asks_for_a_drift_and_says_what_is_new(watch, capsys):
    assert watch.run() == 1
    said = capsys.readouterr().out
    assert "imports Config from vllm.config" in said
    assert said.count("(new)") == 1  # Other was not in the base either
    assert f"(in {matrix.newest()} too)" in said
    assert "A new drift is needed" in said


def test_a_release_that_fits_asks_for_none(watch, capsys):
    assert watch.run(newest="9.1.0") == 0
    assert "nothing that asks for a new drift" in capsys.readouterr().out


def test_a_release_that_has_a_row_is_left_to_its_tests(watch):
    assert watch.run(newest=matrix.newest()) == 0


@pytest.mark.parametrize("name", ["zz", "9.9.9"])
def test_what_cannot_be_told(watch, capsys, name):
    assert watch.run(name) == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_a_record_keeps_the_others_in_order(watch):
    watch.run("9.1.0", "--record")
    found = json.loads(watch.records.read_text())
    assert list(found) == ["9.1.0", "9.10.0"]
    assert found["9.1.0"]["speculators"] == {"1": {"mismatches": 0, "mended": 0, "unmended": 0}}
    assert found["9.1.0"]["date"]


def test_compatibility_shows_it_as_sources_and_never_as_tested(monkeypatch):
    counts = {"mismatches": 7, "mended": 5, "unmended": 2}
    known = {"9.1.0": {"date": "2026-12-02", "speculators": {"0.4.0.1": counts}}, matrix.newest(): {}}
    monkeypatch.setattr(matrix, "audited", lambda: known)
    page = docs.compatibility_page()
    assert "| 9.1.0 |  |  | sources: 7, 2 |" in page
    assert page.count(f"\n| {matrix.newest()} |") == 1
    assert "nothing was run" in page
    standing = matrix.standing("9.1.0", "0.4.0.1")
    assert standing.state == "newer"
    assert "2026-12-02" in standing.words


@pytest.mark.parametrize(
    ("pip", "uv", "answer"),
    [(["pip"], None, "vllm (9.0.0)\nAvailable versions: 9.0.0, 8.0.0\n"), ([], "uv", "vllm==9.0.0\n    # via -\n")],
)
def test_the_newest_release_is_what_pip_or_uv_says(monkeypatch, pip, uv, answer):
    monkeypatch.setattr(fetch, "_pip", lambda: pip)
    monkeypatch.setattr(fetch.shutil, "which", lambda name: uv)
    monkeypatch.setattr(
        fetch.subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, 0, answer, "")
    )
    assert fetch.newest("vllm") == "9.0.0"


@pytest.mark.parametrize(("code", "said"), [(1, "ERROR: No matching distribution"), (0, "something else")])
def test_an_index_that_does_not_answer_is_one_message(monkeypatch, code, said):
    monkeypatch.setattr(fetch, "_pip", lambda: ["pip"])
    monkeypatch.setattr(
        fetch.subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, code, "", said)
    )
    with pytest.raises(UsageError, match="newest vllm"):
        fetch.newest("vllm")
