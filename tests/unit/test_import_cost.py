"""Importing the package or a light module brings no torch, vLLM, speculators or transformers."""

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import speculators_compat

HEAVY = ("speculators", "torch", "transformers", "vllm")

# Modules that need foreign classes when they are imported. vLLM alone imports them, in a worker.
NEED_TORCH_AT_IMPORT = {"speculators_compat.capture.extension", "speculators_compat.capture.outbox"}

# Imports the named modules one after the other; prints which one brought which heavy package.
PROBE = """
import importlib, json, sys
heavy, names = json.load(sys.stdin)
blamed, seen = {}, set()
for name in names:
    importlib.import_module(name)
    new = {module.partition(".")[0] for module in sys.modules} & set(heavy) - seen
    if new:
        blamed[name] = sorted(new)
    seen |= new
json.dump(blamed, sys.stdout)
"""


def _modules(folder: Path, prefix: str) -> list[str]:
    """Every module of a package, found without importing any."""
    found = [prefix.rstrip(".")]
    for info in pkgutil.iter_modules([str(folder)]):
        if info.ispkg:
            found += _modules(folder / info.name, f"{prefix}{info.name}.")
        elif info.name != "__main__":
            found.append(prefix + info.name)
    return found


ALL = _modules(Path(speculators_compat.__file__).parent, "speculators_compat.")
LIGHT = [name for name in ALL if name not in NEED_TORCH_AT_IMPORT]


def _heavy_imports(names: list[str], path: Path | None = None) -> dict[str, list[str]]:
    environment = dict(os.environ)
    if path:
        environment["PYTHONPATH"] = str(path)
    run = subprocess.run(
        [sys.executable, "-c", PROBE],
        check=False,
        input=json.dumps([HEAVY, names]),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Empty packages of the heavy names: importing one succeeds, and is seen, everywhere."""
    for name in HEAVY:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


def test_the_package_alone_is_light():
    assert _heavy_imports(["speculators_compat"]) == {}


def test_every_light_module_is_light_here():
    """Beside the real packages in an engine session, without them in the unit session."""
    assert _heavy_imports(LIGHT) == {}


def test_every_light_module_is_light_beside_stand_ins(stand_ins: Path):
    assert _heavy_imports(LIGHT, stand_ins) == {}


def test_a_heavy_import_is_blamed_on_its_module(stand_ins: Path):
    (stand_ins / "planted.py").write_text("import torch\n")
    assert _heavy_imports(["json", "planted"], stand_ins) == {"planted": ["torch"]}


def test_the_allowlist_names_modules_that_exist():
    assert NEED_TORCH_AT_IMPORT.issubset(ALL)
