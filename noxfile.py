"""Sessions of the project; the engine environments come from the matrix table.

Every version of an engine environment is read from src/speculators_compat/matrix.toml and its
constraint file, every engine setting from tools/engine.env. `nox --list` shows the sessions.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nox

sys.path.insert(0, str(Path(__file__).parent / "src"))
from speculators_compat import matrix

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True  # a skipped engine session proves nothing
nox.options.sessions = ["lint", "unit"]

ROOT = Path(__file__).parent
BUILD = ROOT / "build"
DISTRIBUTION = "speculators-compat"
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
# Pairs that run every test; the others run those of one cell (`pytest --cell`).
WHOLE = [row for row in matrix.rows() if row["vllm"] == matrix.default()["vllm"] and not row["restored"]]
CI = [row for row in matrix.rows() if row["ci"] and row not in WHOLE]
EVERYTHING = "--everything"
# The rest of tests/unit needs no engine: the unit session runs it.
ENGINE_TESTS = ["tests/capture", "tests/testing", "tests/drifts", "tests/e2e", "tests/unit/test_packaging.py"]
# Engines side by side: two cores and 24 GiB of memory take two.
ENGINES = os.environ.get("ENGINES", "2")


def group(name: str) -> tuple[str, ...]:
    """The requirements of one dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PROJECT, name)


def engine_env() -> dict[str, str | None]:
    """The settings of the CPU engine; what the caller has set wins."""
    lines = (ROOT / "tools" / "engine.env").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # None unsets. Without byte code every process compiles torch, transformers and vLLM anew: 24 s of CPU time instead
    # of 10, and the tests start hundreds of processes.
    return {"PYTHONDONTWRITEBYTECODE": None, **{key: os.environ.get(key, value) for key, value in pairs}}


def install_package(session: nox.Session, *args: str) -> None:
    """Install the package as a user gets it: built, and built anew each time."""
    session.install("--reinstall-package", DISTRIBUTION, ".", *args)


def install_engine(session: nox.Session, row: dict[str, Any]) -> None:
    """Install vLLM, then the package, then speculators as a user does; prove that the pair is what the row names."""
    overrides = Path(session.create_tmp()) / "overrides.txt"
    forced = matrix.forced(row)
    overrides.write_text("".join(f"{name}=={version}\n" for name, version in forced.items()), encoding="utf-8")
    pins = f"constraints/vllm-{row['vllm']}.txt"
    vllm = f"{row['distribution']}=={row['build']}"
    session.install(vllm, *forced, *group("test"), "--constraint", pins, "--override", str(overrides))
    replace_extension(session, row)
    # Without the pins: they must survive because the package moves nothing, not because held.
    install_package(session)
    speculators = f"speculators=={row['speculators']}"
    session.run(DISTRIBUTION, "install", speculators, env={**engine_env(), "UV_CONSTRAINT": str(ROOT / pins)})
    named = [f"{name}=={version}" for name, version in forced.items()]
    session.run("python", "tools/check_versions.py", f"vllm=={row['build']}", speculators, *named, env=engine_env())


def replace_extension(session: nox.Session, row: dict[str, Any]) -> None:
    """Take vLLM's extension from another build of the release, where the row's own does not load everywhere."""
    if not row["extension"]:
        return
    build = f"{row['distribution']}=={row['extension']['build']}"
    folder = Path(session.create_tmp()) / "extension"
    session.install(build, "--no-deps", "--target", str(folder))
    (new,) = folder.glob("vllm/_C*.so")
    (old,) = Path(session.virtualenv.location).glob(f"lib/python*/site-packages/vllm/{new.name}")
    symbols = [f"{name}={other}" for name, other in row["extension"]["relink"].items()]
    session.run(sys.executable, "tools/relink.py", str(new), str(old), *symbols, external=True)


def run_pytest(
    session: nox.Session, paths: list[str], marks: str, *options: str, env: dict[str, str | None] | None = None
) -> None:
    """Run pytest and leave a JUnit file for tools/summarise.py; named tests replace the paths."""
    named = any((ROOT / arg.split("::")[0]).exists() for arg in session.posargs)
    args = [*([] if named else paths), "-m", marks, *options, *session.posargs]
    junit = BUILD / "junit" / (re.sub(r"[^\w.-]+", "-", session.name).strip("-") + ".xml")
    session.run("pytest", f"--junit-xml={junit}", *args, env=env)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff (rules and format) and mypy, on everything."""
    session.install("-e", ".", *group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def unit(session: nox.Session) -> None:
    """The tests that need neither vLLM nor torch, on the Python that runs nox."""
    install_package(session, *group("test"))
    run_pytest(session, ["tests/unit", "tests/drifts"], "not engine and not slow")


def each(rows: list[dict[str, Any]]) -> Any:
    """One session per row."""
    return nox.parametrize(("python", "row"), [nox.param(row["python"], row, id=matrix.name(row)) for row in rows])


@nox.session
@each(WHOLE)
def engine(session: nox.Session, row: dict[str, Any]) -> None:
    """All tests beside one pair of real vLLM and speculators; --everything adds the slow ones."""
    install_engine(session, row)
    marks = ["not resolver"]
    if EVERYTHING in session.posargs:
        session.posargs.remove(EVERYTHING)
    else:
        marks += ["not slow"] + ([] if row["default"] else ["not default_pair"])
    # A file stays in one process: the engines that its tests share are started once.
    run_pytest(session, ENGINE_TESTS, " and ".join(marks), "-n", ENGINES, "--dist", "loadfile", env=engine_env())


@nox.session
@each(CI)
def bracket(session: nox.Session, row: dict[str, Any]) -> None:
    """One cell of the matrix, of the releases that `make test` adds at both ends."""
    run_cell(session, row)


@nox.session
@each(list(matrix.rows()))
def cell(session: nox.Session, row: dict[str, Any]) -> None:
    """One cell of the matrix; tools/run_matrix.py runs these one by one and records them."""
    run_cell(session, row)


def run_cell(session: nox.Session, row: dict[str, Any]) -> None:
    """Exactness, faults, states, one pipeline run, and the drifts that begin or end with this vLLM."""
    install_engine(session, row)
    paths = ["tests/e2e", "tests/drifts"]
    run_pytest(session, paths, "not slow", "--cell", "-n", ENGINES, "--dist", "loadgroup", env=engine_env())


@nox.session(python=matrix.default()["python"])
def demo(session: nox.Session) -> None:
    """The demo on the default pair; further arguments are the demo's own."""
    install_engine(session, matrix.default())
    out = str((BUILD / "demo").relative_to(ROOT))
    session.run(DISTRIBUTION, "demo", "--out", out, *session.posargs, env=engine_env())


@nox.session(python=matrix.default()["python"])
def tensor_parallel(session: nox.Session) -> None:
    """Tensor parallel 1, 2 and 8 on the default pair, and Kimi's 61 layers; writes its figures."""
    install_engine(session, matrix.default())
    run_pytest(session, ["tests/e2e/test_tensor_parallel.py"], "slow", env=engine_env())


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages; a broken link fails."""
    session.install(*group("docs"))
    session.run("mkdocs", "build", "--strict")


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks that need no engine."""
    install_package(session)
    session.run("python", "benchmarks/import_cost.py", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """The audit over every published release; their sources are fetched once (some GB of downloads)."""
    install_package(session, *group("test"))
    cache = os.environ.get("SPECULATORS_COMPAT_CACHE", str(ROOT / ".nox" / "audit-cache"))
    env: dict[str, str | None] = {"SPECULATORS_COMPAT_CACHE": cache, "AUDIT_FETCH": "1"}
    run_pytest(session, ["tests/audit"], "not engine", env=env)
