"""The command line: exit codes, one message for bad input, and light imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from tests.support import interruptible

COMMAND = [sys.executable, "-m", "speculators_compat"]
HEAVY = ("torch", "vllm", "speculators", "transformers", "datasets")


def run(*arguments: object, cwd, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one message of a refused call."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["pipeline", "--help"],
        ["exec", "--help"],
        ["demo", "--help"],
        ["doctor", "--no-load", "--json"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_no_heavy_import(tmp_path, arguments):
    code = (
        f"import sys; sys.argv = ['speculators-compat', *{arguments!r}]\n"
        "from speculators_compat.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-1] == "[]"


def test_every_command_is_listed(tmp_path):
    shown = run("--help", cwd=tmp_path).stdout
    for name in (
        "pipeline",
        "prepare",
        "extract",
        "vocab",
        "train",
        "plan",
        "report",
        "exec",
        "demo",
        "doctor",
        "serve-check",
    ):
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("step", ["pipeline", "prepare", "extract", "vocab", "train", "plan", "report"])
def test_missing_configuration(tmp_path, step):
    assert "nothing.yaml" in refused(run(step, "nothing.yaml", cwd=tmp_path))


def test_unknown_key(tmp_path):
    content = {"model": "m", "output": "run", "prepare": {"data": "sharegpt"}, "sed": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    assert "sed: unknown key" in refused(run("pipeline", "config.yaml", cwd=tmp_path))
    assert not (tmp_path / "run").exists()


def test_checkpoint_with_code_of_its_own_is_refused_before_anything_starts(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    code = {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}
    (model / "config.json").write_text(json.dumps(code))
    (model / "evil.py").write_text("raise SystemExit('the code ran')")
    content = {"model": "model", "output": "run", "prepare": {"data": "sharegpt"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    for step in ("pipeline", "prepare", "extract", "vocab", "train"):
        message = refused(run(step, "config.yaml", cwd=tmp_path))
        assert "evil.Config" in message
        assert "trust_remote_code: true" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [("--layers", 6, "7 layers"), ("--tensor-parallel", 3, "1, 2, 4 or 8")],
)
def test_demo_that_cannot_work_is_refused(tmp_path, option, value, expected):
    assert expected in refused(run("demo", "--out", tmp_path / "demo", option, value, cwd=tmp_path))
    assert not (tmp_path / "demo").exists()


def test_demo_leaves_a_folder_of_something_else_alone(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("mine")
    refused(run("demo", "--out", "demo", cwd=tmp_path))
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["thesis.txt"]


def test_doctor_reports_every_drift_as_json(tmp_path):
    from speculators_compat.drifts import catalogue

    result = run("doctor", "--json", "--no-load", cwd=tmp_path, env={"SPECULATORS_COMPAT": "1"})
    facts = json.loads(result.stdout)
    assert [drift["id"] for drift in facts["drifts"]] == [drift.id for drift in catalogue()]
    assert all(drift["state"] and drift["reason"] for drift in facts["drifts"])
    assert facts["versions"]["speculators_compat"]["version"]
    assert (result.returncode, facts["verdict"]) == (2, "cannot tell")


def test_doctor_shows_a_switched_off_shim(tmp_path):
    shown = run("doctor", "--json", "--no-load", cwd=tmp_path, env={"SPECULATORS_COMPAT": "0"})
    assert {drift["state"] for drift in json.loads(shown.stdout)["drifts"]} == {"off"}


FAKE_STEPS = """
import sys, time
from pathlib import Path
import speculators_compat.pipeline.run as run

def check(config): return None
def command(step, path):
    return [sys.executable, "-c", {steps!r}.get(step, "") or "pass"]
run.check_inputs, run.step_command = check, command
from speculators_compat.cli import main
sys.argv = ["speculators-compat", "pipeline", "config.yaml"]
main()
"""


def fake_pipeline(folder, steps: dict[str, str]) -> list[str]:
    content = {"model": "m", "output": "run", "prepare": {"data": "sharegpt"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    return [sys.executable, "-c", FAKE_STEPS.format(steps=steps)]


def note(step: str, then: str = "") -> str:
    return f"open('order', 'a').write('{step} '); {then}"


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (2, 2), (9, 1)])
def test_pipeline_stops_at_the_first_failing_step_and_names_it(tmp_path, code, expected):
    steps = {
        "prepare": note("prepare"),
        "extract": note("extract", f"exit({code})"),
        "vocab": note("vocab"),
    }
    result = subprocess.run(fake_pipeline(tmp_path, steps), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == expected
    assert "The step extract failed" in result.stderr
    assert (tmp_path / "order").read_text() == "prepare extract "
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_pipeline_stops_its_step(tmp_path, number, expected):
    body = (
        "import os, time\n"
        "open('pid.new', 'w').write(str(os.getpid())); os.replace('pid.new', 'pid')\n"
        "try: time.sleep(600)\n"
        "except KeyboardInterrupt: open('stopped', 'w').close()\n"
    )
    process = subprocess.Popen(fake_pipeline(tmp_path, {"prepare": body}), cwd=tmp_path, preexec_fn=interruptible)
    while not (tmp_path / "pid").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == expected
    assert (tmp_path / "stopped").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(("name", "code"), [("transformers", 2), ("no_such_module", 1)])
def test_a_missing_engine_is_one_error_and_another_missing_module_is_not_hidden(tmp_path, name, code):
    fake = f"""
import sys
import speculators_compat.pipeline.run as run

def step(step, path): raise ModuleNotFoundError("no", name={name!r})
run.run_step = step
from speculators_compat.cli import main
sys.argv = ["speculators-compat", "prepare", "config.yaml"]
main()
"""
    done = subprocess.run([sys.executable, "-c", fake], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("This needs vLLM and speculators" in done.stderr) is (code == 2)
    assert ("Traceback" in done.stderr) is (code == 1)
