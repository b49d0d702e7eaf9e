"""Extracted samples from one form to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._app import app, exit_codes, integers

ROWS_HELP = "Prepared rows, where they are neither in the folder nor in prepared/rows beside it."


@app.command("export")
def export_(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Extracted samples of either form.")],
    target: Annotated[Path, typer.Argument(metavar="NEW_FOLDER", help="Folder to make.")],
    rows: Annotated[Path | None, typer.Option(help=ROWS_HELP)] = None,
) -> None:
    """Write extracted samples in the form that the trainers of speculators 0.5 and later read."""
    with exit_codes():
        from ..exchange import export

        typer.echo(f"{export(source, target, rows)} samples in {target}")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Prepared rows with their hidden_states.")],
    target: Annotated[Path, typer.Argument(metavar="NEW_FOLDER", help="Folder to make.")],
    model: Annotated[str | None, typer.Option(help="Verifier, where the folder does not say it.")] = None,
    vllm_layer_ids: Annotated[
        str | None, typer.Option(metavar="2,30,58,61", help="Layers, where the folder does not say them.")
    ] = None,
    rows: Annotated[Path | None, typer.Option(help=ROWS_HELP)] = None,
) -> None:
    """Write samples of speculators 0.5 and later as data_<i>.pt, which 0.3 and 0.4 train on."""
    with exit_codes():
        from ..exchange import import_ as convert

        layers = None if vllm_layer_ids is None else integers("--vllm-layer-ids", vllm_layer_ids)
        typer.echo(f"{convert(source, target, model, layers, rows)} samples in {target}")
