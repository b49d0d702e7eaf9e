"""Hold the newest vLLM of the package index against the call sites of speculators, before anybody runs it.

Usage: ``watch.py [RELEASE] [--record]``. The base is the newest row of matrix.toml: what is new since then is said so.
Nothing is run and nothing is installed; the sources are fetched once into the audit's cache. ``--record`` writes the
result into audited.json, from which docs/compatibility.md shows the release until it has a row of its own.

Exit code 0: sources show nothing that asks for a new drift, or the newest release has a row already. 1: a new drift is
needed. 2: cannot tell (no index, not a release, sources that cannot be read).
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from packaging.version import Version  # noqa: E402

from speculators_compat import matrix  # noqa: E402
from speculators_compat.audit.compare import Report, audit  # noqa: E402
from speculators_compat.audit.fetch import fetch, newest  # noqa: E402
from speculators_compat.drift import UsageError  # noqa: E402
from speculators_compat.versions import release  # noqa: E402

RECORDS = ROOT / "src" / "speculators_compat" / "audited.json"


def callers() -> list[str]:
    """Releases of speculators that are run beside the newest row and drive vLLM themselves.

    The restored generator makes the calls of 0.4.0.1, and what else 0.5 and later have calls nothing of vLLM.
    """
    found = {row["speculators"] for row in matrix.rows() if row["vllm"] == matrix.newest() and not row["restored"]}
    return sorted(found, key=Version)


def watch(vllm: str) -> tuple[dict[str, Report], list[str]]:
    """Audit one release; gives the report of each speculators, and lines that say what is new."""
    base, api = fetch("vllm", matrix.newest()), fetch("vllm", vllm)
    reports, lines = {}, []
    for speculators in callers():
        caller = fetch("speculators", speculators)
        reports[speculators] = report = audit(caller, [api])
        known = {finding.key for finding in audit(caller, [base]).findings}
        counts = report.summary()
        fresh = [finding for finding in report.findings if finding.counts and finding.key not in known]
        lines.append(
            f"speculators {speculators} on vLLM {vllm}: {counts['mismatches']} mismatches, {counts['unmended']} "
            f"not mended, {len(fresh)} new since {matrix.newest()}"
        )
        for finding in report.unmended:
            since = "new" if finding in fresh else f"in {matrix.newest()} too"
            lines.append(f"  {finding.site.path}:{finding.site.line}: {finding.passes}; {finding.wants} ({since})")
    return reports, lines


def record(vllm: str, reports: dict[str, Report]) -> None:
    """Write the counts into audited.json, releases in order."""
    found = {speculators: {key: report.summary()[key] for key in ("mismatches", "mended", "unmended")}
             for speculators, report in reports.items()}  # fmt: skip
    entry: dict[str, Any] = {"date": datetime.now(timezone.utc).date().isoformat(), "speculators": found}
    records = json.loads(RECORDS.read_text(encoding="utf-8")) | {vllm: entry}
    ordered = {name: records[name] for name in sorted(records, key=Version)}
    RECORDS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Look, say, and give the exit code."""
    parser = argparse.ArgumentParser(description="Audit the newest vLLM.")
    parser.add_argument("release", nargs="?", help="default: the newest of the package index")
    parser.add_argument("--record", action="store_true", help="write the result into audited.json")
    options = parser.parse_args()
    try:
        vllm = release(options.release or newest("vllm"))
        if vllm == "unknown":
            raise UsageError("A release is a version number.", repr(options.release), "Name one, or none.")
        if any(row["vllm"] == vllm for row in matrix.rows()):
            print(f"vLLM {vllm} has a row in matrix.toml: its tests say more than its sources.")
            return 0
        reports, lines = watch(vllm)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    if options.record:
        record(vllm, reports)
    if any(report.unmended for report in reports.values()):
        print("A new drift is needed, or a wider range of one that is there: docs/adding-a-release.md.")
        return 1
    print(
        f"Sources show nothing that asks for a new drift. To run it, give vLLM {vllm} a row: docs/adding-a-release.md."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
