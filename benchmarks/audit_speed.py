"""How long an audit takes: one pair, and one speculators against every vLLM release of the list.

Each runs as a user runs it, in a fresh interpreter. The sources must be in the cache (docs/audit.md): fetching is
not timed. Elapsed time depends on what else the machine does; CPU time does so less, and is what the targets are held
against where the load average is above the number of cores.

Run: ``python benchmarks/audit_speed.py RELEASE [RELEASE ...]``.
Writes ``benchmarks/results/audit.json``, seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "audit.json"
PAIR_TARGET_S, ALL_TARGET_S = 5.0, 60.0


def seconds(speculators: str, releases: list[str]) -> tuple[float, float]:
    """Elapsed and CPU time of one command."""
    command = [sys.executable, "-m", "speculators_compat", "audit", speculators, "--json"]
    command += [part for release in releases for part in ("--vllm", release)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description="Time speculators-compat audit.")
    parser.add_argument("releases", nargs="+", help="vLLM releases")
    parser.add_argument("--speculators", default="0.3.0")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    singles = {release: seconds(options.speculators, [release]) for release in options.releases}
    every = seconds(options.speculators, options.releases)
    slowest = max(singles, key=lambda release: singles[release][1])
    result = {
        "speculators": options.speculators,
        "releases": len(options.releases),
        "slowest_pair": {"vllm": slowest, "s": round(singles[slowest][0], 2), "cpu_s": round(singles[slowest][1], 2)},
        "all_s": round(every[0], 1),
        "all_cpu_s": round(every[1], 1),
        "load_average": [round(load, 1) for load in (before, os.getloadavg()[0])],
        "targets_s": {"pair": PAIR_TARGET_S, "all": ALL_TARGET_S},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
