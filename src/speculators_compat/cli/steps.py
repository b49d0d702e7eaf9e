"""The pipeline and its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..drift import UsageError
from ._app import app, exit_codes, show

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="Configuration; docs/pipeline.md lists it.")]


def _step(name: str, config: Path) -> None:
    with exit_codes():
        from ..pipeline.run import run_step

        run_step(name, config)


@app.command()
def pipeline(config: ConfigPath) -> None:
    """Run all steps: prepare, extract, vocab, train."""
    with exit_codes():
        from ..pipeline.run import run_pipeline

        show(run_pipeline(config))


@app.command()
def prepare(config: ConfigPath) -> None:
    """Step 1: conversations into token ids and loss masks."""
    _step("prepare", config)


@app.command()
def extract(
    config: ConfigPath,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Part I of N, counted from 0: one engine of several on the same folder."),
    ] = None,
    ray: Annotated[int | None, typer.Option(metavar="N", min=1, help="N engines under Ray (extra `ray`).")] = None,
) -> None:
    """Step 2: hidden states of the verifier, one file per sample."""
    with exit_codes():
        from ..pipeline import on_ray
        from ..pipeline.run import run_step
        from ..shard import Shard

        if ray is not None and shard is not None:
            raise UsageError("--shard is one part, --ray starts all of them.", "both", "Leave one out.")
        if ray is not None:
            on_ray.extract(config, ray)
            return
        run_step("extract", config, **({} if shard is None else {"shard": Shard.parse(shard)}))


@app.command()
def vocab(config: ConfigPath) -> None:
    """Step 3: the draft's vocabulary."""
    _step("vocab", config)


@app.command()
def train(config: ConfigPath) -> None:
    """Step 4: the draft."""
    _step("train", config)


@app.command()
def plan(
    config: ConfigPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, sizes in bytes.")] = False,
) -> None:
    """Show what a run needs before it starts; exit 2 if its disk cannot hold it."""
    with exit_codes():
        from rich.console import Console

        from ..pipeline.config import load_config
        from ..pipeline.plan import as_renderable, check, make_plan

        found = make_plan(load_config(config))
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=2))
        else:
            Console().print(as_renderable(found))
        check(found)


@app.command("report")
def report_(config: ConfigPath) -> None:
    """Write report.html and the pictures of a run, as the pipeline does at its end."""
    with exit_codes():
        from ..pipeline.config import load_config
        from ..pipeline.page import write_report

        typer.echo(write_report(load_config(config)))
