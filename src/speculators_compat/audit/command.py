"""The command ``audit``: from words on the command line to a report and an exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drift import UsageError
from .compare import MODELS, audit
from .diff import compare_releases
from .output import as_dict, as_markdown, as_renderable, as_sarif
from .sources import FolderSource, Source, local, open_source

__all__ = ["Request", "run"]

FORMATS = ("text", "json", "markdown", "sarif")


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        code: The code under audit: ``installed`` speculators, a release, a wheel, a folder, or a script.
        vllm: Releases of vLLM: the same, one or several.
        diff: Two releases to compare instead.
        written_for: The vLLM release that a script was written for.
        models: Model classes that stand for a loaded model; empty for the usual two.
        form: text, json, markdown or sarif.
        strict: Whether notes count as mismatches.
        out: File to write to instead of the terminal.
    """

    code: str = "installed"
    vllm: tuple[str, ...] = ()
    diff: tuple[str, str] | None = None
    written_for: str | None = None
    models: tuple[str, ...] = ()
    form: str = "text"
    strict: bool = False
    out: Path | None = None


def run(request: Request) -> int:
    """Audit, show, and say how it went.

    Returns:
        0 if nothing is unmended, 1 if something is.

    Raises:
        UsageError: Bad input.
    """
    caller = _caller(request.code)
    models = tuple(_model(name) for name in request.models) or MODELS
    if request.diff is not None:
        if request.form == "sarif" or request.vllm:
            raise UsageError("--diff compares two releases.", "--vllm or --sarif beside it", "Leave it out.")
        old, new = (open_source("vllm", where) for where in request.diff)
        difference = compare_releases(caller, old, new, models)
        forms = {"json": difference.as_dict, "markdown": difference.as_markdown, "text": difference.as_renderable}
        _show(forms[request.form](), request.out)
        return 1 if difference.breaks else 0
    apis = [open_source("vllm", where) for where in request.vllm or ("installed",)]
    written_for = open_source("vllm", request.written_for) if request.written_for else None
    report = audit(caller, _in_order(apis), models, written_for)
    make = {"text": as_renderable, "json": as_dict, "markdown": as_markdown, "sarif": as_sarif}[request.form]
    _show(make(report), request.out)
    return 1 if report.unmended or (request.strict and report.findings) else 0


def _caller(code: str) -> Source:
    """The installed speculators by default; a folder that is no speculators is a package of the user's own."""
    path = local(code)
    if path is None:
        return open_source("speculators", code)
    is_speculators = any((root / "speculators" / "__init__.py").is_file() for root in (path, path / "src"))
    if not path.is_dir() or is_speculators or path.name == "speculators":
        return open_source("speculators", code)
    if not (path / "__init__.py").is_file():
        raise UsageError(
            "A folder under audit must be a Python package.",
            f"{path} without __init__.py",
            "Name the package or a script.",
        )
    whole = path.resolve()
    return FolderSource(whole.name, whole.parent, whole.name, "unknown")


def _model(name: str) -> str:
    """A model class: ``module:Class`` under vLLM's models, or a dotted name."""
    if ":" in name:
        module, _, cls = name.partition(":")
        return f"vllm.model_executor.models.{module}.{cls}"
    if name.count(".") < 2:
        raise UsageError(
            "A model is named module:Class, as in llama:LlamaForCausalLM.",
            repr(name),
            "See vllm/model_executor/models.",
        )
    return name


def _in_order(apis: list[Source]) -> list[Source]:
    """Oldest release first, so that *since* means something; sources of unknown release keep their place at the end."""
    from packaging.version import Version

    labels = [api.label for api in apis]
    if len(set(labels)) != len(labels):
        raise UsageError("Each vLLM is named once.", ", ".join(labels), "Leave one out.")
    return sorted(
        apis, key=lambda api: (api.release == "unknown", Version(api.release if api.release != "unknown" else "0"))
    )


def _show(content: Any, out: Path | None) -> None:
    from rich.console import Console

    if isinstance(content, dict):
        content = json.dumps(content, indent=2) + "\n"
    if out is not None:
        try:
            with out.open("w", encoding="utf-8") as file:
                file.write(content) if isinstance(content, str) else Console(file=file, width=160).print(content)
        except OSError as error:
            raise UsageError("--out must be a file that can be written.", str(error), "Name another.") from None
        return
    if isinstance(content, str):
        import sys

        sys.stdout.write(content)
    else:
        Console().print(content)
