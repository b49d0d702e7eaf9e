"""What each call site was written against: recorded from the releases that speculators declares to fit.

Some changes show only beside what was there before: the order of positional parameters, a default that a call relies
on, an attribute whose owner can no longer be followed. A contract keeps just those facts, per use, as JSON.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from .binding import Call, bound_names, problems
from .collect import Collected, Collector
from .findings import Finding, Severity, Site, Use
from .names import MISSING
from .signature import Signature
from .values import Atom, Class, ClassObject, FunctionObject, Instance

__all__ = ["contract_for", "differences", "merge"]

SCHEMA = 1


@functools.lru_cache(maxsize=1)
def _shipped() -> tuple[dict[str, Any], ...]:
    folder = resources.files(__package__).joinpath("contracts")
    return tuple(
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda item: item.name)
        if file.name.endswith(".json")
    )


def contract_for(package: str, version: str) -> dict[str, Any] | None:
    """The shipped contract of a caller's release; None if there is none."""
    return next((c for c in _shipped() if c["caller"] == package and version in c["versions"]), None)


def merge(package: str, versions: list[str], found: dict[str, Collected]) -> dict[str, Any]:
    """Record what every use is in the releases that fit.

    Args:
        package: The caller.
        versions: Its releases that have these call sites.
        found: Release of the API to what was collected there.

    Returns:
        The contract, as JSON data.
    """
    uses: dict[str, dict[str, Any]] = {}
    for collected in found.values():
        for use in collected.uses:
            _add(uses.setdefault(use.key, _blank(use)), use)
    return {
        "schema": SCHEMA,
        "caller": package,
        "versions": versions,
        "fits": list(found),
        "uses": {key: uses[key] for key in sorted(uses)},
    }


def _blank(use: Use) -> dict[str, Any]:
    site = use.site
    entry: dict[str, Any] = {
        "kind": use.kind,
        "symbols": [],
        "site": [site.path, site.line, site.column, site.function, site.code],
    }
    if use.signature is not None and use.call is not None:
        entry |= {"positional": [], "defaults": {}, "known": []}
        entry["call"] = [use.call.positional, list(use.call.keywords), use.call.more_positional, use.call.more_keywords]
    return entry


def _add(entry: dict[str, Any], use: Use) -> None:
    _once(entry["symbols"], use.symbol)
    if use.signature is None or use.call is None:
        return
    _once(entry["positional"], bound_names(use.call, use.signature))
    for parameter in use.signature.parameters:
        _once(entry["known"], parameter.name)
    for name, default in relied_on(use.call, use.signature):
        _once(entry["defaults"].setdefault(name, []), default)


def relied_on(call: Call, signature: Signature) -> Iterator[tuple[str, str]]:
    """Parameters that the call leaves to their defaults."""
    given = {*bound_names(call, signature), *call.keywords}
    if call.more_positional or call.more_keywords:
        return
    for parameter in signature.parameters:
        if parameter.default is not None and parameter.name not in given:
            yield parameter.name, parameter.default


def _once(items: list[Any], item: Any) -> None:
    if item not in items:
        items.append(item)


def differences(contract: dict[str, Any], found: Collected) -> Iterator[Finding]:
    """What differs from the contract and shows nowhere else."""
    uses = {use.key: use for use in found.uses}
    lines = {(finding.site.path, finding.site.line) for finding in found.findings}
    for key, entry in contract["uses"].items():
        use = uses.get(key)
        if use is None:
            site = Site(*entry["site"])
            if (site.path, site.line) not in lines:
                yield from _lost(entry, site, found.collector)
        elif use.signature is not None and use.call is not None and "positional" in entry:
            yield from _reordered(entry, use)
            yield from _defaults(entry, use)


def _reordered(entry: dict[str, Any], use: Use) -> Iterator[Finding]:
    """Positional arguments that now become other parameters. A mere renaming does not hurt them."""
    names = bound_names(use.call, use.signature)
    if not names or names in entry["positional"]:
        return
    now = {parameter.name for parameter in use.signature.parameters}
    for index, name in enumerate(names):
        before = [old[index] for old in entry["positional"] if index < len(old)]
        if name not in before and (now & set(before) or name in entry["known"]):
            yield Finding(
                "reordered-arguments", use.symbol, name, use.site,
                f"passes {before[0] if before else '?'} as argument {index + 1}", f"argument {index + 1} is now {name}",
                Severity.RUN,
            )  # fmt: skip
            return


def _defaults(entry: dict[str, Any], use: Use) -> Iterator[Finding]:
    for name, default in relied_on(use.call, use.signature):
        before = entry["defaults"].get(name)
        if before and default not in before:
            yield Finding(
                "changed-default", use.symbol, name, use.site, f"leaves {name} to its default, {' or '.join(before)}",
                f"the default is {default}", Severity.NOTE,
            )  # fmt: skip


def _lost(entry: dict[str, Any], site: Site, collector: Collector) -> Iterator[Finding]:
    """A use that can no longer be followed to its owner: the owner it had is asked instead."""
    answers = [_ask(symbol, entry, site, collector) for symbol in entry["symbols"]]
    if answers and all(answers):
        yield from answers[0] or ()


def _ask(symbol: str, entry: dict[str, Any], site: Site, collector: Collector) -> list[Finding]:
    owner, _, name = symbol.rpartition(".")
    last = owner.rpartition(".")[2]
    if entry["kind"] == "attribute" or (entry["kind"] == "call" and name != "__init__"):
        atom = _find(owner, collector)
        if isinstance(atom, ClassObject) and _is_gone(atom.cls, name, collector):
            return [
                Finding("missing-attribute", symbol, name, site, f"uses .{name}", f"{last} has no {name}", Severity.RUN)
            ]
    if entry["kind"] == "call" and "call" in entry:
        atom = _find(symbol.removesuffix(".__init__"), collector)
        signature = collector.signatures.of(atom) if atom is not None else None
        positional, keywords, more, others = entry["call"]
        found = list(problems(Call(positional, tuple(keywords), more, others), signature)) if signature else []
        return [
            Finding(p.kind, symbol, p.name, site, f"calls {last}.{name}", f"takes {signature.text()}", Severity.RUN)
            for p in found
            if signature is not None
        ]
    return []


def _is_gone(cls: Class, name: str, collector: Collector) -> bool:
    """Whether no class of the API provides the name any more; what every torch.nn.Module has does not count."""
    members = collector.members
    certain = None not in members.order(cls) and members.attribute(Instance(cls), name) in (MISSING, None)
    opened = any(isinstance(item, Class) and members.body(item).open_ended for item in members.order(cls))
    return certain and not opened and members.home(cls, name) is None


def _find(symbol: str, collector: Collector) -> Atom | None:
    """A class, function or method by its dotted name."""
    parts = symbol.split(".")
    for split in range(len(parts) - 1, 0, -1):
        base = ".".join(parts[:split])
        if collector.program.module(base) is None:
            continue
        atoms = list(collector.from_import(base, parts[split]))
        for name in parts[split + 1 :]:
            owner = atoms[0] if len(atoms) == 1 else None
            receiver = Instance(owner.cls) if isinstance(owner, ClassObject) else None
            atoms = list(collector.members.attribute(receiver, name) or ()) if receiver is not None else []
        found = atoms[0] if len(atoms) == 1 else None
        return found if isinstance(found, (ClassObject, FunctionObject)) else None
    return None


def main(arguments: list[str]) -> None:
    """Write the shipped contracts from sources: ``FOLDER_OF_API_SOURCES FOLDER_OF_CALLERS``.

    Args:
        arguments: A folder with one folder per vLLM release, and one with a folder per speculators release.
    """
    from .collect import collect
    from .compare import MODELS, modules_of
    from .sources import open_source

    apis, callers = Path(arguments[0]), Path(arguments[1])
    wanted = {
        "0.3": (["0.3.0"], ["0.11.0"]),
        "0.4": (["0.4.0", "0.4.0.1"], ["0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0"]),
    }
    for name, (versions, releases) in wanted.items():
        caller = open_source("speculators", str(callers / versions[-1]))
        found = {}
        for release in releases:
            api = open_source("vllm", str(apis / release))
            found[release] = collect(caller, api, modules_of(caller, api.package), MODELS)
        target = Path(__file__).parent / "contracts" / f"speculators-{name}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(merge("speculators", versions, found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
