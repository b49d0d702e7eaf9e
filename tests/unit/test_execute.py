"""``exec``: what is run, in which environment, and that every Python child is shimmed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speculators_compat.drift import UsageError
from speculators_compat.execute import INTERPRETER, bootstrap_dir, command, environment

PROBE = "import sys; print('speculators_compat' in sys.modules)"


def run(*arguments: object, cwd: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ}
    if path is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [path, env.get("PYTHONPATH")]))
    line = [sys.executable, "-m", "speculators_compat", "exec", *map(str, arguments)]
    return subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["-m"], ["nothing.py"], ["-m", "no_such_module"], ["--unknown"]], ids=str)
def test_nothing_to_run_is_exit_code_2_with_one_message(tmp_path, arguments):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: exec ")
    assert "Traceback" not in result.stderr


def test_script_gets_its_own_arguments_and_exit_code(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    result = run(script, "--help", "-m", "--", "x", cwd=tmp_path)
    assert result.stdout == "['--help', '-m', '--', 'x']\n"
    assert result.returncode == 7


def test_module_is_run_from_the_current_folder(tmp_path):
    (tmp_path / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    result = run("-m", "mine", "--help", cwd=tmp_path)
    assert result.stdout == "__main__ ['--help']\n", result.stderr


def test_shim_is_there_before_the_script_starts(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROBE)
    assert run(script, cwd=tmp_path).stdout == "True\n"


def test_spawned_children_are_shimmed_before_they_import_the_script_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "print(__name__, 'speculators_compat' in sys.modules, flush=True)\n"
        "def child(): pass\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start(); process.join()\n"
    )
    result = run(script, cwd=tmp_path)
    assert result.stdout == "__main__ True\n__mp_main__ True\n", result.stderr


def test_next_sitecustomize_still_runs(tmp_path):
    own = tmp_path / "site"
    own.mkdir()
    (own / "sitecustomize.py").write_text("marker = 'mine'")
    script = tmp_path / "script.py"
    script.write_text("import sitecustomize; print(sitecustomize.marker, sitecustomize.__file__)")
    result = run(script, cwd=tmp_path, path=str(own))
    assert result.stdout == f"mine {own / 'sitecustomize.py'}\n", result.stderr


def test_interpreter_without_the_package_is_left_alone(tmp_path):
    env = environment({"PATH": os.environ["PATH"]}) | {INTERPRETER: "/somewhere/else/python"}
    # -S: no site-packages, as in an environment that does not have this package.
    path = str(bootstrap_dir() / "sitecustomize.py")
    code = f"import runpy; runpy.run_path({path!r}); print('alive')"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "alive\n", result.stderr


def test_script_does_not_start_if_the_shim_cannot(tmp_path):
    broken = tmp_path / "broken"
    (broken / "speculators_compat").mkdir(parents=True)
    (broken / "speculators_compat" / "__init__.py").write_text("raise RuntimeError('planted')")
    env = {**environment({"PATH": os.environ["PATH"]})}
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(broken)])
    result = subprocess.run(
        [sys.executable, "-c", "print('ran')"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert "RuntimeError: planted" in result.stderr


def test_bootstrap_comes_first_and_once():
    once = environment({"PYTHONPATH": os.pathsep.join(["a", "b"])})
    twice = environment(once)
    assert once["PYTHONPATH"].split(os.pathsep) == [str(bootstrap_dir()), "a", "b"]
    assert twice["PYTHONPATH"] == once["PYTHONPATH"]


def test_missing_script_says_what_was_looked_for():
    with pytest.raises(UsageError, match=r"no file gone\.py"):
        command(["gone.py"])
