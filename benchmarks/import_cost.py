"""How long ``import speculators_compat`` takes.

Median of fresh interpreters, the bare interpreter subtracted. Bare and importing interpreters
alternate, so that a busy moment of the machine meets both; the CPU time, which other processes
disturb less, stands beside the elapsed time. Run: ``python benchmarks/import_cost.py [--runs N]``.
Writes ``benchmarks/results/import_cost.json``, times in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "import_cost.json"
TARGET_MS = 50.0


def cpu_seconds() -> float:
    """CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def milliseconds(code: str) -> tuple[float, float]:
    """Elapsed and CPU time of one fresh interpreter that runs the code."""
    start, start_cpu = time.perf_counter(), cpu_seconds()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1000 * (time.perf_counter() - start), 1000 * (cpu_seconds() - start_cpu)


def medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    """The medians of elapsed and of CPU time, each on its own."""
    return statistics.median(t for t, _ in times), statistics.median(t for _, t in times)


def measure(runs: int) -> dict[str, object]:
    """Alternate bare and importing interpreters; the first pair only warms the file cache."""
    pairs = [(milliseconds("pass"), milliseconds("import speculators_compat")) for _ in range(runs + 1)][1:]
    bare, bare_cpu = medians([bare for bare, _ in pairs])
    total, total_cpu = medians([importing for _, importing in pairs])
    return {
        "import_ms": round(total - bare, 1),
        "import_cpu_ms": round(total_cpu - bare_cpu, 1),
        "bare_interpreter_ms": round(bare, 1),
        "runs": runs,
        "target_ms": TARGET_MS,
        "speculators_compat": version("speculators-compat"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description="Time `import speculators_compat`.")
    parser.add_argument("--runs", type=int, default=20, help="interpreters of each kind")
    result = measure(parser.parse_args().runs)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(
        f"import speculators_compat: {result['import_ms']} ms (target: under {TARGET_MS:.0f} ms), "
        f"of CPU time {result['import_cpu_ms']} ms; "
        f"bare interpreter: {result['bare_interpreter_ms']} ms; median of {result['runs']} runs"
    )


if __name__ == "__main__":
    main()
