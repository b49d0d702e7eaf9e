"""An audit: one caller held against one or several releases of the API."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..drift import UsageError
from . import contracts, records
from .collect import Collected, collect
from .findings import Finding
from .sources import Source

__all__ = ["MODELS", "Report", "audit", "check_pair", "modules_of"]

# Stand for the loaded model: the plain decoder that upstream's tests use, and the verifier of this project's pipeline.
MODELS = (
    "vllm.model_executor.models.llama.LlamaForCausalLM",
    "vllm.model_executor.models.kimi_k25.KimiK25ForConditionalGeneration",
)
# ast and the inference recurse with the depth of an expression.
RECURSION_LIMIT = 12_000


@dataclass
class Report:
    """The result of an audit.

    Attributes:
        caller: The code under audit.
        apis: The releases that it was held against, in order.
        findings: One per mismatch; a mismatch of several releases comes once.
        uses: How many uses of the API were followed, per release.
        models: The model classes that stood for a loaded model.
    """

    caller: Source
    apis: list[Source]
    findings: list[Finding]
    uses: dict[str, int]
    models: tuple[str, ...] = MODELS
    collected: dict[str, Collected] = field(default_factory=dict, repr=False)

    @property
    def unmended(self) -> list[Finding]:
        """Mismatches that no drift mends."""
        return [finding for finding in self.findings if finding.counts and not finding.mended]

    def summary(self) -> dict[str, int]:
        """Counts."""
        counted = [finding for finding in self.findings if finding.counts]
        return {
            "mismatches": len(counted),
            "mended": len([finding for finding in counted if finding.mended]),
            "unmended": len(self.unmended),
            "notes": len(self.findings) - len(counted),
        }


def audit(
    caller: Source, apis: Sequence[Source], models: Sequence[str] = MODELS, written_for: Source | None = None
) -> Report:
    """Hold a caller against each release.

    Args:
        caller: The code under audit.
        apis: One or several releases of the package that it uses, oldest first.
        models: Model classes that stand for a loaded model.
        written_for: The release that the caller was written for; default: what is recorded of speculators' releases.

    Returns:
        The report.

    Raises:
        UsageError: A source cannot be read, or nothing in the caller uses the API.
    """
    contract = None
    if written_for is not None:
        found = _collected(caller, written_for, models)
        contract = contracts.merge(caller.package, [caller.version], {written_for.label: found})
    merged: dict[tuple[Any, ...], Finding] = {}
    report = Report(caller, list(apis), [], {}, tuple(models))
    for api in apis:
        collected, findings = check_pair(caller, api, models, contract)
        report.uses[api.label] = len(collected.uses)
        report.collected[api.label] = collected
        for finding in findings:
            known = merged.get(finding.key)
            if known is None:
                merged[finding.key] = finding.with_(releases=(api.label,), since=api.label)
            else:
                # The state of the newest release: that is the one a reader moves to.
                merged[finding.key] = known.with_(
                    releases=(*known.releases, api.label), state=finding.state, wants=finding.wants, hint=finding.hint
                )
    report.findings = sorted(merged.values(), key=Finding.sort_key)
    return report


def check_pair(
    caller: Source, api: Source, models: Sequence[str] = MODELS, contract: dict[str, Any] | None = None
) -> tuple[Collected, list[Finding]]:
    """Hold a caller against one release.

    Returns:
        What was collected, and the findings with their drifts, sorted.
    """
    collected = _collected(caller, api, models)
    contract = contract or contracts.contract_for(caller.package, caller.version)
    found = [*collected.findings, *records.behaviours(collected, caller, api)]
    if contract is not None:
        found += contracts.differences(contract, collected)
    unique: dict[tuple[Any, ...], Finding] = {}
    for finding in found:
        unique.setdefault(finding.key, records.linked(finding, caller, api))
    return collected, sorted(unique.values(), key=Finding.sort_key)


def _collected(caller: Source, api: Source, models: Sequence[str]) -> Collected:
    modules = modules_of(caller, api.package)
    if not modules:
        raise UsageError(
            f"The code under audit must use {api.package}.",
            f"{caller.label}, which does not name it",
            "Check the path.",
        )
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    try:
        with _no_garbage_collection():
            return collect(caller, api, modules, models)
    except RecursionError:
        raise UsageError(
            "The sources must nest less deeply than Python itself allows.",
            f"{caller.label} or {api.label}",
            "Check them.",
        ) from None
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Syntax trees are many small objects that all stay: looking for garbage among them takes half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def modules_of(caller: Source, package: str) -> list[str]:
    """Modules of the caller that name the API, or that name one of those modules."""
    texts = {}
    for path in caller.paths():
        content = caller.read(path)
        if content is not None:
            texts[_dotted(path)] = content.decode("utf-8", errors="replace")
    selected = {name for name, text in texts.items() if re.search(rf"\b{package}\b", text)}
    before = -1
    while before != len(selected):
        before = len(selected)
        selected |= {name for name, text in texts.items() if name not in selected and _names_any(text, selected)}
    return sorted(selected)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _names_any(text: str, modules: Iterable[str]) -> bool:
    """Whether a module imports one of the modules, by its last name."""
    lasts = {module.rpartition(".")[2] for module in modules}
    imports = re.findall(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w., ]+))", text, re.MULTILINE)
    named = {part for pair in imports for item in pair for part in re.split(r"[., ]+", item) if part}
    return bool(named & lasts)
