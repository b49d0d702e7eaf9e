"""Write the constraint file of each release of the matrix: ``name==version`` lines, nothing else.

Usage: ``make_constraints.py [RELEASE ...]``; all releases without arguments. One file serves every speculators beside
that vLLM: it is resolved for 0.4.0.1, which bounds what it needs, plus what 0.3.0 asks for besides. Local build tags
(``+cpu``) are cut off, because the package index does not carry them. An ``override`` of matrix.toml is what the
resolver cannot find by itself, because the declared bounds of vLLM and speculators contradict each other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
from speculators_compat import matrix  # noqa: E402

HEADER = "# Versions that this release was tested with. Made by tools/make_constraints.py; do not edit.\n"
NEWEST = "0.4.0.1"
ONLY_0_3_0 = ("accelerate", "deepspeed", "httpx[http2]", "typer-slim>=0.12.0")
TESTS = ("hypothesis", "matplotlib", "pytest", "pytest-xdist", "uv")
#: The row names it: a pin here would keep the other releases out.
LEFT_OUT = ("speculators",)


def overrides(row: dict[str, Any]) -> list[str]:
    """The versions that a row forces."""
    return [f"{name}=={version}" for name, version in matrix.forced(row).items()]


def resolve(row: dict[str, Any]) -> list[str]:
    """Every pin of a release's environment."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("make_constraints.py needs uv on PATH, found none; install it with: python3 -m pip install uv")
    wanted = [f"{row['distribution']}=={row['build']}", f"speculators=={NEWEST}", *matrix.TORCH, *ONLY_0_3_0, *TESTS]
    with tempfile.TemporaryDirectory() as folder:
        forced = Path(folder, "overrides.txt")
        forced.write_text("\n".join(overrides(row)), encoding="utf-8")
        command = [uv, "pip", "compile", "-", "--no-header", "--no-annotate", "--python-version", row["python"]]
        command += ["--override", str(forced)]
        done = subprocess.run(command, input="\n".join(wanted), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"vLLM {row['vllm']}: {done.stderr}")
    pins = [line.split("+", 1)[0].strip() for line in done.stdout.splitlines() if "==" in line]
    return [pin for pin in pins if Requirement(pin).name not in LEFT_OUT]


def main(releases: list[str]) -> None:
    """Write the files."""
    rows = {row["vllm"]: row for row in matrix.rows()}
    unknown = set(releases) - rows.keys()
    if unknown:
        sys.exit(f"matrix.toml has no release {', '.join(sorted(unknown))}; it has: {', '.join(rows)}")
    for release in releases or rows:
        path = ROOT / "constraints" / f"vllm-{release}.txt"
        path.write_text(HEADER + "\n".join(resolve(rows[release])) + "\n", encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
