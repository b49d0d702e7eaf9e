"""A fake speculators in a folder, with its version, for fresh interpreters that have neither torch nor vLLM."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from tests.support import run_python

#: A package with any class that is asked of it.
STUB = """__version__ = "1.0"
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""


def stub(folder: Path, *modules: str) -> None:
    """Write packages that have whatever name is imported from them."""
    for module in modules:
        path = folder.joinpath(*module.split("."))
        path.mkdir(parents=True, exist_ok=True)
        (path / "__init__.py").write_text(STUB)


def fake_speculators(folder: Path, version: str, files: Mapping[str, str]) -> Path:
    """Write a package ``speculators`` that is installed as ``version``; ``files`` map module paths to their text."""
    metadata = folder / f"speculators-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: speculators\nVersion: {version}\n")
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "speculators" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.parents:
            if parent == folder:
                break
            (parent / "__init__.py").touch()
    return folder


def run_beside(folder: Path, code: str, **environment: str) -> CompletedProcess[str]:
    """Run code in a process that finds the fakes first, under the shim."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return run_python(f"import speculators_compat\n{code}", {**environment, "PYTHONPATH": path})
