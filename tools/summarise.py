"""Add up the JUnit files of all test sessions and print one line as pytest does.

Usage: ``summarise.py FOLDER [--status N] [--out FILE]``. FOLDER holds the files, N is the exit
status of the runner that made them, FILE also receives the line. Exit code 0 only when at least one
test passed, none failed and N is 0.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ORDER = ("failed", "passed", "skipped", "xfailed", "errors")


def outcome(case: ElementTree.Element) -> str:
    """The outcome of one test case, in pytest's words."""
    if case.find("error") is not None:
        return "errors"
    if case.find("failure") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def add_up(folder: Path) -> tuple[Counter[str], float]:
    """Count outcomes and seconds over every file of a folder."""
    counts: Counter[str] = Counter()
    seconds = 0.0
    for path in sorted(folder.glob("*.xml")):
        root = ElementTree.parse(path).getroot()  # noqa: S314 (files of our own test runs)
        counts.update(outcome(case) for case in root.iter("testcase"))
        seconds += sum(float(suite.get("time", "0")) for suite in root.iter("testsuite"))
    return counts, seconds


def line(counts: Counter[str], seconds: float) -> str:
    """One line: ``==== 3 passed, 1 skipped in 2.00s ====``."""
    parts = [f"{counts[name]} {name}" for name in ORDER if counts[name]]
    if counts["errors"] == 1:
        parts[-1] = "1 error"
    return f"==== {', '.join(parts) or 'no tests ran'} in {seconds:.2f}s ===="


def main() -> int:
    """Print the line; the exit code says whether the whole run is good."""
    parser = argparse.ArgumentParser(description="Add up JUnit files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--status", type=int, default=0, help="exit status of the test runner")
    parser.add_argument("--out", type=Path, help="file that also receives the line")
    options = parser.parse_args()
    counts, seconds = add_up(options.folder)
    bad = counts["failed"] + counts["errors"]
    if options.status and not bad:
        print(f"A session failed outside its tests (runner status {options.status}): see above.")
        counts["errors"] += 1
    text = line(counts, seconds)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(bool(bad or options.status or not counts["passed"]))


if __name__ == "__main__":
    sys.exit(main())
