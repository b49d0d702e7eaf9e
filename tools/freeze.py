"""Write the constraint file of one environment: ``name==version`` lines, nothing else.

Usage: ``freeze.py PYTHON FILE``, where PYTHON is the environment's interpreter. Left out are
editable installs and anything installed from a path or an address; local build tags (``+cpu``) are
cut off, because the package index does not carry them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HEADER = "# Versions that this pair was tested with. Made by tools/freeze.py; do not edit.\n"
OWN = "speculators-compat=="


def constraints(freeze: str) -> list[str]:
    """The lines of ``uv pip freeze`` that are plain pins, without local build tags."""
    pins = [line.split("+", 1)[0] for line in freeze.splitlines() if "==" in line]
    return [pin for pin in pins if not pin.startswith(OWN)]


def main(python: str, target: str) -> None:
    """Freeze one environment into one file."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("freeze.py needs uv on PATH, found none; install it with: python3 -m pip install uv")
    command = [uv, "pip", "freeze", "--exclude-editable", "--python", python]
    freeze = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = constraints(freeze)
    Path(target).write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: freeze.py PYTHON FILE")
    main(*sys.argv[1:])
