"""Ask the resolver which pairs of matrix.toml the declared bounds allow; print what it refuses, as TOML.

Usage: ``resolve_pairs.py [SPECULATORS ...]``; without arguments, the releases that have no generator of their own. Each
pair is one ``uv pip compile`` of the published vLLM (not its CPU build, whose torch the package index does not carry)
beside speculators: metadata is read, nothing is installed. The printed tables belong into matrix.toml.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
from speculators_compat import matrix  # noqa: E402

#: The sentence of uv that names the two bounds that exclude each other.
BECAUSE = re.compile(r"Because (.*?), we can conclude that ")


def refusal(vllm: str, speculators: str) -> str:
    """Why the pair has no solution, in the resolver's words; empty where it has one."""
    command = ["uv", "pip", "compile", "-", "--quiet", "--no-build", "--python-version", matrix.PYTHON]
    wanted = f"vllm=={vllm}\nspeculators=={speculators}\n"
    done = subprocess.run(command, input=wanted, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    words = " ".join(done.stderr.split())
    found = BECAUSE.search(words)
    if "No solution found" not in words or found is None:
        sys.exit(f"vLLM {vllm}, speculators {speculators}: {words}")
    return found[1]


def without_version(words: str, vllm: str) -> str:
    """The words without vLLM's own release, so that releases with the same bounds share them."""
    return words.replace(f"vllm=={vllm}", "vllm").replace("speculators>=", "speculators==")


def main(releases: list[str]) -> None:
    """Print the tables."""
    for speculators in releases or matrix.restored_releases():
        refused: dict[str, list[str]] = {}
        for vllm in dict.fromkeys(row["vllm"] for row in matrix.rows()):
            words = refusal(vllm, speculators)
            if words:
                refused.setdefault(without_version(words, vllm), []).append(vllm)
        for words, found in refused.items():
            listed = ", ".join(f'"{vllm}"' for vllm in found)
            print(f'[[refused]]\nspeculators = "{speculators}"\nvllm = [{listed}]\nbecause = "{words}"\n', flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the [[refused]] tables of matrix.toml.")
    parser.add_argument("releases", nargs="*", metavar="SPECULATORS", help="default: those without a generator")
    main(parser.parse_args().releases)
