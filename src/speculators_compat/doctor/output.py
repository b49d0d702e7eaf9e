"""The facts for people, in 80 columns. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["as_renderable"]

# What stands in the way comes first.
ORDER = ("blocked", "off", "applied", "waiting", "not needed")
SHOWN = 10
COLOURS = {"ready": "green", "not ready": "red", "cannot tell": "yellow"}


def as_renderable(facts: dict[str, Any]) -> Group:
    """Environment, pair, drifts, workers, hazards, verdict; each part only where it says something."""
    parts: list[RenderableType] = [
        *(Text(f"- {label} {value}") for label, value in facts["environment"].items()),
        *(
            Text(f"- {_name(name)} {facts['versions'][name]['version']}")
            for name in ("speculators_compat", "python", "system")
        ),
        Text(),
        Text.assemble(("Pair  ", "bold"), facts["pair"]["words"]),
    ]
    for title, part in (
        ("Drifts", _drifts(facts["drifts"]) if facts["pair"]["state"] != "incomplete" else ()),
        ("Imports that fail", [Text(f"{name}: {error}") for name, error in facts["problems"].items()]),
        ("Audit of this vLLM", _audit(facts["audit"])),
        ("Workers", _workers(facts["workers"])),
        ("Installed files", _files(facts["files"])),
        ("Hazards", [Text(f"{hazard['level']}: {hazard['text']}") for hazard in facts["hazards"]]),
    ):
        shown = list(part)
        if shown:
            parts += [Text(), Text(title, style="bold"), *(Padding(item, (0, 0, 0, 2)) for item in shown)]
    parts += [Text(), Text.assemble(("Verdict  ", "bold"), (facts["verdict"], COLOURS[facts["verdict"]]))]
    parts += [Padding(Text(reason), (0, 0, 0, 2)) for reason in facts["reasons"]]
    parts += [Text("Next", style="bold")] if facts["next"] else []
    parts += [Padding(Text(f"{number}. {step}"), (0, 0, 0, 2)) for number, step in enumerate(facts["next"], 1)]
    return Group(*parts)


def _name(name: str) -> str:
    return {"speculators_compat": "speculators-compat", "python": "Python", "system": "System"}[name]


def _drifts(drifts: list[dict[str, Any]]) -> Iterator[RenderableType]:
    width = max((len(drift["id"]) for drift in drifts), default=0)
    for state in ORDER:
        found = [drift for drift in drifts if drift["state"] == state]
        if not found:
            continue
        yield Text(f"{len(found)} {state}")
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        # An id is never broken, for it is what a reader searches for; the reason takes what is left.
        table.add_column(no_wrap=True, min_width=width)
        table.add_column(overflow="fold")
        for drift in found:
            table.add_row(drift["id"], Text(drift["reason"]))
        yield Padding(table, (0, 0, 0, 2))


def _audit(audit: dict[str, Any] | None) -> Iterator[Text]:
    if audit is None:
        return
    if audit["error"]:
        yield Text(f"cannot be made: {audit['error']}")
        return
    counts = audit["summary"]
    yield Text(f"{counts['mismatches']} mismatches, {counts['mended']} mended, {counts['unmended']} not")
    for row in audit["unmended"]:
        yield Text(f"{row['site']['path']}:{row['site']['line']}: {row['passes']}; {row['wants']}")


def _workers(asked: dict[str, Any] | None) -> Iterator[RenderableType]:
    if asked is None:
        return
    yield Text(f"one engine, tensor parallel 1, {asked['model']}: {asked['seconds']} s")
    for worker in asked["workers"]:
        shim = worker["shim"]
        active = "active" if shim["active"] else "not active"
        counts = Counter(drift["state"] for drift in worker["drifts"])
        states = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        yield Text(f"worker {worker['rank']} (process {shim['pid']}): shim {shim['version']} {active}; {states}")
        for state in ("blocked", "applied"):
            ids = [drift["id"] for drift in worker["drifts"] if drift["state"] == state]
            if ids:
                yield Padding(Text(f"{state}: {', '.join(ids)}"), (0, 0, 0, 2))
        for line in worker["mended"]:
            yield Padding(Text(line), (0, 0, 0, 2))
    if asked["error"]:
        yield Text(asked["error"])
        yield from (Text(line) for line in asked["log"])


def _files(files: dict[str, dict[str, Any]]) -> Iterator[Text]:
    for module, result in files.items():
        state = f"{result['state']}: " if result["state"] == "cannot tell" else ""
        yield Text(
            f"{module}: {state}{result['reason']}" + (f" ({result['checked']} files)" if result["checked"] else "")
        )
        named = [*(f"edited {path}" for path in result["edited"]), *(f"missing {path}" for path in result["missing"])]
        yield from (Text(f"  {line}") for line in named[:SHOWN])
        if len(named) > SHOWN:
            yield Text(f"  and {len(named) - SHOWN} more (--json lists all)")
