"""The application, and what its commands share: exit codes (0 done, 1 failed, 2 bad input, 130 interrupted)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..drift import DriftError, UsageError

__all__ = ["app", "exit_codes", "integers", "main", "show"]

app = typer.Typer(
    help="speculators' hidden-state extraction and draft training on the installed vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# What vLLM and speculators bring: where one is missing, the wrong environment is active.
NEEDED = ("datasets", "speculators", "torch", "transformers", "vllm")
DOCTOR = "`speculators-compat doctor` shows what is installed."


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"speculators-compat {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of ``speculators-compat`` and ``python -m speculators_compat``."""
    app(prog_name="speculators-compat")


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what went wrong into one message and an exit code."""
    from ..pipeline.run import StepError

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        yield
    except UsageError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        typer.echo(
            f"Error: This needs vLLM and speculators beside it. Found: no {error.name} in this environment. {DOCTOR}",
            err=True,
        )
        raise typer.Exit(2) from None
    except StepError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(error.code if error.code in (2, 130) else 1) from None
    except DriftError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None


def show(summary: dict[str, Any]) -> None:
    """Print a run's summary as a table."""
    from rich.console import Console

    from ..pipeline.summary import as_table

    Console().print(as_table(summary))


def integers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between.

    Raises:
        UsageError: Something else stands there.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes whole numbers with commas between.", text, "Say 2,30,58,61.") from None
