"""An audit as text, JSON, Markdown and SARIF. Decides nothing."""

from __future__ import annotations

from typing import Any

from .compare import Report
from .findings import Finding, Severity, Site

__all__ = ["SCHEMA_VERSION", "as_dict", "as_markdown", "as_renderable", "as_sarif"]

# Changes when a field is renamed, removed, or means something else, not when one is added. docs/audit.md lists them.
SCHEMA_VERSION = 1
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL = "speculators-compat audit"
KINDS = {
    "missing-module": "An imported module is not there",
    "missing-name": "An imported name is not there",
    "missing-attribute": "An attribute or method is not there",
    "missing-rpc-method": "No worker has the method that is called by name",
    "unexpected-argument": "A keyword argument is not taken",
    "ignored-argument": "A keyword argument is dropped without an error",
    "missing-argument": "A required argument is not passed",
    "too-many-arguments": "More arguments are passed by position than are taken",
    "repeated-argument": "An argument is passed twice",
    "reordered-arguments": "A positional argument becomes another parameter",
    "changed-default": "A default that the call relies on is another one",
    "refused-by-guard": "The code refuses an architecture",
    "name-clash": "A worker extension has a name that the worker has",
    "changed-behaviour": "A drift's record says that this use means something else here",
}


def as_dict(report: Report) -> dict[str, Any]:
    """Plain data, as docs/audit.md describes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "caller": {"package": report.caller.package, "label": report.caller.label, "version": report.caller.version},
        "apis": [
            {"package": api.package, "label": api.label, "version": api.version, "uses": report.uses[api.label]}
            for api in report.apis
        ],
        "models": list(report.models),
        "summary": report.summary(),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "site": _site(finding.site),
        "symbol": finding.symbol,
        "name": finding.name,
        "passes": finding.passes,
        "wants": finding.wants,
        "hint": finding.hint,
        "applies_to": list(finding.applies_to),
        "since": finding.since,
        "releases": list(finding.releases),
        "drift": finding.drift,
        "state": finding.state,
        "mended": finding.mended,
    }


def _site(site: Site) -> dict[str, Any]:
    return {"path": site.path, "line": site.line, "column": site.column, "function": site.function, "code": site.code}


def headline(report: Report) -> str:
    """One sentence."""
    counts = report.summary()
    pair = f"{report.caller.label} on {', '.join(api.label for api in report.apis)}"
    followed = ", ".join(str(number) for number in report.uses.values())
    notes = f", {counts['notes']} notes" if counts["notes"] else ""
    return (
        f"{pair}: {counts['mismatches']} mismatches, {counts['mended']} mended, {counts['unmended']} not{notes} "
        f"({followed} uses followed)"
    )


def _mending(finding: Finding) -> str:
    if finding.drift is None:
        return "no drift"
    return f"{finding.drift}: {finding.state}"


def _what(finding: Finding) -> str:
    hint = f"; {finding.hint}" if finding.hint else ""
    models = f" [{', '.join(finding.applies_to)}]" if finding.applies_to else ""
    return f"{finding.passes}; {finding.wants}{hint}{models}"


def _columns(report: Report, finding: Finding) -> list[str]:
    since = [finding.since] if len(report.apis) > 1 else []
    return [
        f"{finding.site.path}:{finding.site.line}",
        finding.site.code,
        _what(finding),
        *since,
        finding.severity.words,
        _mending(finding),
    ]


def _headers(report: Report) -> list[str]:
    return ["where", "line", "mismatch", *(["since"] if len(report.apis) > 1 else []), "shows", "drift"]


def as_renderable(report: Report) -> Any:
    """For a terminal: the mismatches, then the notes, then one sentence."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for title, notes in (("Mismatches", False), ("Notes", True)):
        found = [finding for finding in report.findings if (finding.severity is Severity.NOTE) == notes]
        if found:
            parts.append(Text(title, style="bold"))
        for path in sorted({finding.site.path for finding in found}):
            parts += [Text(path), _table([finding for finding in found if finding.site.path == path], report)]
    return Group(*parts, Text(headline(report)))


def _table(findings: list[Finding], report: Report) -> Any:
    """The findings of one file: its name stands above, so that 80 columns are enough."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    several = len(report.apis) > 1
    for header in ("line", "mismatch", *(["since"] if several else []), "shows", "drift"):
        table.add_column(header, overflow="fold", ratio=5 if header == "mismatch" else 2 if header == "drift" else None)
    for finding in findings:
        mismatch = Text.assemble((finding.site.code, "dim"), "\n", _what(finding))
        since = [Text(finding.since)] if several else []
        table.add_row(str(finding.site.line), mismatch, *since, finding.severity.words, Text(_mending(finding)))
    return table


def as_markdown(report: Report) -> str:
    """A table per severity class, for a report or an issue."""
    headers = _headers(report)
    lines = [f"## {headline(report)}", ""]
    if report.findings:
        lines += [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    for finding in report.findings:
        cells = _columns(report, finding)
        cells[1] = f"`{cells[1]}`"
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def as_sarif(report: Report) -> dict[str, Any]:
    """SARIF 2.1.0, for code scanning: unmended mismatches are errors, mended ones warnings."""
    from .. import __version__

    kinds = sorted({finding.kind for finding in report.findings})
    rules = [{"id": kind, "shortDescription": {"text": KINDS[kind]}} for kind in kinds]
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": TOOL, "version": __version__, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, kinds) for finding in report.findings],
            }
        ],
    }


def _result(finding: Finding, kinds: list[str]) -> dict[str, Any]:
    level = "note" if not finding.counts else "warning" if finding.mended else "error"
    region = {"startLine": finding.site.line, "startColumn": finding.site.column}
    place = {"artifactLocation": {"uri": finding.site.path}, "region": region}
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": level,
        "message": {"text": f"{_what(finding)} ({finding.severity.words}; {_mending(finding)})"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "finding/v1": f"{finding.kind}:{finding.site.path}:{finding.site.function}:{finding.name}"
        },
        "properties": {"symbol": finding.symbol, "releases": list(finding.releases), "drift": finding.drift or ""},
    }
