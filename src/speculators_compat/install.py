"""Install speculators beside the vLLM that is here, and move nothing that is installed.

speculators 0.4 declares ``torch<=2.10`` and ``transformers<=4.57.6``; vLLM requires torch 2.11 from 0.20 on and
transformers 5 from 0.24 on, so no resolver installs the two together by their declarations. What vLLM brought stays
here, whatever speculators declares; what speculators needs and nobody brought is added. Drifts mend what the other
versions break.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .drift import UsageError

__all__ = ["install", "unmet"]

PACKAGE = "speculators"
Run = Callable[[list[str]], None]


def install(what: str, run: Run | None = None) -> list[str]:
    """Install ``what`` into this environment.

    Args:
        what: A requirement of speculators with one release, ``speculators==0.4.0.1``.
        run: Runs one command; by default a subprocess whose output is shown.

    Returns:
        Every declared bound that the installed versions do not meet, in words.

    Raises:
        UsageError: ``what`` is not such a requirement, vLLM is not installed, there is neither uv nor pip, or the
            installer failed.
    """
    _check(what)
    pip, run = _pip(), run or _run
    # Its own requirements are left out first: a resolver would move torch, or refuse.
    run([*pip, "--no-deps", what])
    missing = [str(wanted) for wanted in _requirements() if _version(wanted.name) is None]
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            held = Path(folder, "installed.txt")
            held.write_text("".join(f"{line}\n" for line in _installed()), encoding="utf-8")
            run([*pip, "--constraint", str(held), *missing])
    return unmet()


def unmet() -> list[str]:
    """The bounds that the installed speculators declares and the environment does not meet, in words."""
    found = [(wanted, _version(wanted.name)) for wanted in _requirements()]
    return [
        f"{wanted} is declared; {version} stays"
        for wanted, version in found
        if version is not None and not wanted.specifier.contains(version, prereleases=True)
    ]


def _check(what: str) -> None:
    required, way_out = "A release of speculators is installed beside vLLM.", f"Say for instance {PACKAGE}==0.4.0.1."
    try:
        wanted = Requirement(what)
    except InvalidRequirement:
        raise UsageError(required, what, way_out) from None
    if canonicalize_name(wanted.name) != PACKAGE or not str(wanted.specifier).startswith("=="):
        raise UsageError(required, what, way_out)
    if importlib.util.find_spec("vllm") is None:
        raise UsageError(
            "vLLM must be installed first: its versions stay.", "no vLLM", "Install the vLLM that you pin."
        )


def _pip() -> list[str]:
    """The installer's command: uv where there is one, since its environments have no pip."""
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    if importlib.util.find_spec("pip") is None:
        raise UsageError("uv or pip installs the packages.", "neither", "Install one: python3 -m ensurepip.")
    return [sys.executable, "-m", "pip", "install"]


def _run(command: list[str]) -> None:
    status = subprocess.run(command, check=False).returncode
    if status:
        raise UsageError("The installer must succeed.", f"exit code {status} of {' '.join(command)}", "See above.")


def _requirements() -> Iterable[Requirement]:
    """What the installed speculators declares for everybody here (no extra)."""
    found = (Requirement(line) for line in metadata.requires(PACKAGE) or ())
    return [wanted for wanted in found if wanted.marker is None or wanted.marker.evaluate({"extra": ""})]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _installed() -> list[str]:
    found = {canonicalize_name(dist.metadata["Name"]): dist.version for dist in metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in found.items() if name != PACKAGE)
