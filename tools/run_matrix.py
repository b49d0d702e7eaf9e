"""Run cells of the matrix one after the other and record what came of each in matrix.json.

Usage: ``run_matrix.py [vllm=RELEASE] [speculators=RELEASE] [--keep] [--missing]``. Without a choice, every pair of
matrix.toml; ``--missing`` leaves out what is recorded as passed. A cell is one nox session,
``cell(vllm-...-speculators-...)``: an environment of its own, removed afterwards (``--keep`` leaves it; most of its
8 GB are hard links to uv's cache). Its output is left in build/matrix. Exit code 0 only when every chosen cell passed,
2 when the choice names no pair. Afterwards ``python -m speculators_compat.docs`` writes the tables.

A record holds ``result`` (``passed``, ``failed``, ``not installed``), ``seconds`` (installation included), ``tests``
(outcome to number), ``versions`` (as imported), ``worst_error`` (relative L2, by model), ``failed_tests`` if there are
any, ``reason`` where no test began (the last error of the installation or of the first import), and ``commit`` and
``date``: what the sources were when it ran, and when that was (UTC).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]
from summarise import outcome  # noqa: E402

from speculators_compat import matrix  # noqa: E402

RECORDS = ROOT / "src" / "speculators_compat" / "matrix.json"
LOGS = ROOT / "build" / "matrix"
CHOICES = ("vllm", "speculators")


def commit() -> str:
    """The commit that is checked out; with a plus where files differ from it, the records themselves apart."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RECORDS.relative_to(ROOT)}")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


def chosen(words: list[str]) -> list[dict[str, Any]]:
    """The rows that ``vllm=...`` and ``speculators=...`` name."""
    wanted = dict(word.partition("=")[::2] for word in words)
    unknown = wanted.keys() - set(CHOICES)
    rows = [row for row in matrix.rows() if all(row[key] == value for key, value in wanted.items() if key in row)]
    if unknown or not rows:
        known = ", ".join(dict.fromkeys(row["vllm"] for row in matrix.rows()))
        print("A choice is vllm=RELEASE and speculators=RELEASE, a pair of matrix.toml.", file=sys.stderr)
        print(f"Found: {' '.join(words)}. Releases of vLLM there: {known}.", file=sys.stderr)
        sys.exit(2)
    return rows


def run_cell(row: dict[str, Any], keep: bool) -> dict[str, Any]:
    """Run one session; gives its record."""
    name = matrix.name(row)
    session = f"cell({name})"
    junit = ROOT / "build" / "junit" / f"cell-{name}.xml"
    junit.unlink(missing_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with (LOGS / f"{name}.log").open("w", encoding="utf-8") as log:
        command = [str(Path(sys.executable).with_name("nox")), "-s", session]
        status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    record = {**read_junit(junit), "seconds": round(time.monotonic() - begun)}
    said = (LOGS / f"{name}.log").read_text(encoding="utf-8")
    passed = status == 0 and record["tests"].get("passed")
    began = record["tests"] or "test session starts" in said  # ended from outside, a run leaves no JUnit file
    record["result"] = "passed" if passed else "failed" if began else "not installed"
    if not record["tests"]:
        record["reason"] = last_error(said)
    if not keep:
        shutil.rmtree(ROOT / ".nox" / f"cell-{name.replace('.', '-')}", ignore_errors=True)
    return record


def last_error(log: str) -> str:
    """The last line of a session's log that tells an error, without nox's own."""
    lines = [line.strip() for line in log.splitlines() if re.search(r"(?i)error\b|No solution|because ", line)]
    own = [line for line in lines if not line.startswith("nox >")]
    return own[-1][:300] if own else "see the session's log"


def read_junit(path: Path) -> dict[str, Any]:
    """Outcomes and what the tests recorded of themselves; nothing if the session never came to its tests."""
    if not path.exists():
        return {"tests": {}, "versions": {}, "worst_error": {}}
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))  # noqa: S314 (files of our own test runs)
    properties = {item.get("name", ""): item.get("value", "") for case in cases for item in case.iter("property")}

    def recorded(prefix: str) -> dict[str, str]:
        return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}

    failed = sorted(
        f"{case.get('classname')}::{case.get('name')}" for case in cases if outcome(case) in ("failed", "errors")
    )
    return {
        "tests": dict(Counter(outcome(case) for case in cases)),
        "versions": recorded("version_"),
        "worst_error": {name: float(f"{float(value):.1e}") for name, value in recorded("worst_error_").items()},
        **({"failed_tests": failed} if failed else {}),
    }


def save(name: str, record: dict[str, Any]) -> None:
    """Put one record into the file, in the order of matrix.toml."""
    records = json.loads(RECORDS.read_text(encoding="utf-8")) | {name: record}
    order = [matrix.name(row) for row in matrix.rows()]
    kept = {name: dict(sorted(records[name].items())) for name in order if name in records}
    RECORDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run what was chosen."""
    parser = argparse.ArgumentParser(description="Run cells of the matrix.")
    parser.add_argument("choice", nargs="*", help="vllm=RELEASE and/or speculators=RELEASE; default: all")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--missing", action="store_true", help="only what is not recorded as passed")
    options = parser.parse_args()
    bad = []
    for row in chosen(options.choice):
        name = matrix.name(row)
        before = json.loads(RECORDS.read_text(encoding="utf-8")).get(name, {})
        if options.missing and before.get("result") == "passed":
            continue
        print(f"{name}: ...", flush=True)
        today = datetime.now(timezone.utc).date().isoformat()
        record = {**run_cell(row, options.keep), "commit": commit(), "date": today}
        save(name, record)
        print(f"{name}: {record['result']}, {record['tests']}, {record['seconds']} s", flush=True)
        bad += [name] if record["result"] != "passed" else []
    print(f"{len(bad)} cells did not pass{': ' if bad else ''}{', '.join(bad)}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
