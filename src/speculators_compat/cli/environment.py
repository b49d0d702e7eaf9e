"""What is installed, and what runs under the shim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..drift import UsageError
from ._app import app, exit_codes, show


@app.command(
    "exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="",
)
def exec_(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT | -m MODULE [ARGS]...", help="As after `python`."),
    ] = None,
) -> None:
    """Run a script or module, unmodified, under the shim; processes that it starts included."""
    with exit_codes():
        from ..execute import execute

        execute(arguments or [])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the demo: new, or of a demo to go on with.")] = Path(
        "speculators-compat-demo"
    ),
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Ranks that share the verifier: 1, 2, 4 or 8.")] = 1,
    layers: Annotated[int, typer.Option(min=2, help="Decoder layers of the tiny verifier, 7 or more.")] = 8,
    model: Annotated[str, typer.Option(help="Kind of the tiny verifier: kimi_k25, llama, qwen3, ...")] = "kimi_k25",
) -> None:
    """Make a tiny verifier (a Kimi-K2.5) and conversations, and run the pipeline on them."""
    with exit_codes():
        from ..demo import run_demo

        show(run_demo(out, tensor_parallel, layers, model))


@app.command()
def install(
    what: Annotated[str, typer.Argument(metavar="SPECULATORS", help="One release: speculators==0.4.0.1.")],
) -> None:
    """Install speculators beside the vLLM that is here, whatever bounds it declares; nothing installed moves."""
    with exit_codes():
        from ..install import install as add

        for line in add(what):
            typer.echo(line)


@app.command()
def audit(
    code: Annotated[
        str,
        typer.Argument(metavar="[CODE]", help="speculators as a release, wheel or folder, or a script of your own."),
    ] = "installed",
    vllm: Annotated[
        list[str] | None, typer.Option(help="Release, wheel or folder; default: the installed one. May be repeated.")
    ] = None,
    diff: Annotated[
        tuple[str, str] | None, typer.Option(metavar="OLD NEW", help="Show what changed between two releases instead.")
    ] = None,
    written_for: Annotated[
        str | None, typer.Option(help="The vLLM that CODE was written for: shows reordered arguments and defaults.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model class that is served, as llama:LlamaForCausalLM. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0 for code scanning.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for notes too.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Hold every call site against vLLM's sources, importing neither; exit 1 if something is unmended."""
    with exit_codes():
        from ..audit.command import Request, run

        chosen = [name for name, on in (("json", as_json), ("markdown", markdown), ("sarif", sarif)) if on]
        if len(chosen) > 1:
            raise UsageError("One output format.", " and ".join(f"--{name}" for name in chosen), "Choose one.")
        code_ = run(
            Request(
                code, tuple(vllm or ()), diff, written_for, tuple(model or ()), (chosen or ["text"])[0], strict, out
            )
        )
        raise typer.Exit(code_)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; docs/doctor.md lists its fields.")] = False,
    load: Annotated[
        bool, typer.Option(help="Import speculators' modules, so that drifts are settled; without: a quick look.")
    ] = True,
    workers: Annotated[
        bool, typer.Option("--workers", help="Start a worker on a tiny model and show what it reports of itself.")
    ] = False,
) -> None:
    """Show what is installed, every drift, hazards, and what to do next; exit 0 ready, 1 not ready, 2 cannot tell."""
    with exit_codes():
        from rich.console import Console

        from ..doctor import facts, output, verdict

        found = facts.collect(load, workers)
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            Console().print(output.as_renderable(found))
        raise typer.Exit(verdict.EXIT_CODES[found["verdict"]])
