"""``report.html`` of a run: its summary, versions and pictures in one file that needs no other."""

from __future__ import annotations

import base64
import html
import logging
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import versions
from ..drift import UsageError
from ..store import MANIFEST, atomic_file
from .config import RunConfig
from .curves import Curves, Head, read_curves, read_heads, read_json, read_lengths
from .pictures import NAMES, Picture, draw
from .summary import STEPS, collect, lines

__all__ = ["PAGE", "PICTURES", "render", "try_report", "write_report"]

PAGE = "report.html"
PICTURES = "pictures"
WITHOUT = (
    "no pictures: matplotlib is not installed (the extra 'report' of this package). "
    "Get it with: pip install matplotlib, then: speculators-compat report CONFIG.yaml"
)
PACKAGES = ("vllm", "speculators", "torch", "transformers")
STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { max-width: 900px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .25em 1em .25em 0; text-align: left; vertical-align: top;
border-bottom: 1px solid #e3e3e3; overflow-wrap: anywhere; }
figure { margin: 1.5em 0; } img { width: 100%; max-width: 900px; height: auto; } figcaption { color: #444; }
"""
# Nothing is fetched and nothing runs, whatever a name in the page looks like.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

log = logging.getLogger(__name__)


def try_report(config: RunConfig) -> None:
    """Write the report at the end of a run; whatever goes wrong is one line in the log, because the run is complete.

    Args:
        config: The run.
    """
    try:
        log.info("the report is in %s", write_report(config))
    except Exception as error:  # a picture must not fail a run of days
        log.warning("the run is complete, but its report could not be written: %s: %s", type(error).__name__, error)


def write_report(config: RunConfig) -> Path:
    """Write ``<output>/report.html`` and ``<output>/pictures/*.png``.

    Args:
        config: The run; it may have come only a part of the way.

    Returns:
        Path of the page.

    Raises:
        UsageError: No step of the run has finished.
        OSError: The run folder cannot be written to.
    """
    summary = collect(config)
    if not any(summary[step] for step in STEPS):
        raise UsageError(
            "A report needs a run of which at least one step has finished.",
            f"no report of a step in {config.steps_dir}",
            "Run the pipeline, or name the configuration of a run.",
        )
    curves, lengths, heads = read_curves(config), read_lengths(config), read_heads(config)
    pictures, notes = _draw(curves, lengths, heads)
    if pictures is not None:
        _write_pictures(config, pictures)
    path = config.output / PAGE
    with atomic_file(path) as file:
        file.write(render(config, summary, pictures or [], heads, notes).encode())
    return path


def _draw(curves: Curves, lengths: list[int], heads: list[Head]) -> tuple[list[Picture] | None, list[str]]:
    """Pictures, or None where matplotlib is missing, and what a reader should know."""
    notes = [f"{curves.unreadable} lines of the training metrics are unreadable"] if curves.unreadable else []
    if not curves.train:
        notes.append("no training metrics: the train step has not run")
    if not heads:
        notes.append("no acceptance by position: serve-check has not run")
    try:
        return draw(curves, lengths, heads), notes
    except ImportError:
        log.warning(WITHOUT)
        return None, [*notes, WITHOUT]
    except Exception as error:  # the figures in the tables are worth having without the pictures
        problem = f"no pictures: matplotlib failed with {type(error).__name__}: {error}"
        log.warning(problem)
        return None, [*notes, problem]


def _write_pictures(config: RunConfig, pictures: Sequence[Picture]) -> None:
    folder = config.output / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        with atomic_file(folder / f"{picture.name}.png") as file:
            file.write(picture.png)
    for name in set(NAMES) - {picture.name for picture in pictures}:
        (folder / f"{name}.png").unlink(missing_ok=True)  # of an earlier report, about something that is gone


def render(
    config: RunConfig,
    summary: dict[str, Any],
    pictures: Sequence[Picture],
    heads: Sequence[Head],
    notes: Sequence[str],
) -> str:
    """The page.

    Args:
        config: The run.
        summary: From ``summary.collect``.
        pictures: To show.
        heads: Acceptance of each draft head.
        notes: Sentences on what is missing.

    Returns:
        HTML without any reference to another file. Every string of the run is escaped.
    """
    title = f"{config.output}: {config.model}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        _table(("", ""), _summary_rows(summary)),
        *map(_figure, pictures),
    ]
    if heads:
        parts += [
            "<h2>Acceptance in vLLM</h2>",
            _table(("draft head", "mean length", "by position"), map(_head, heads)),
        ]
    parts += ["<h2>Versions</h2>", _table(("", "this report", "extraction"), _versions(config))]
    if notes:
        parts += ["<h2>Notes</h2><ul>", *(f"<li>{_text(note)}</li>" for note in notes), "</ul>"]
    return "\n".join([*parts, "</body></html>", ""])


def _summary_rows(summary: dict[str, Any]) -> list[tuple[str, ...]]:
    try:
        return list(lines(summary))
    except (KeyError, TypeError, ValueError) as error:  # a step's report of another version
        return [("summary", f"unreadable: {type(error).__name__} {error}")]


def _head(head: Head) -> tuple[str, ...]:
    mean = "" if head.mean_length is None else f"{head.mean_length:.2f}"
    return head.name, mean, ", ".join(f"{value:.1%}" for value in head.acceptance)


def _versions(config: RunConfig) -> list[tuple[str, ...]]:
    from .. import __version__

    found = {name: versions.installed(name) for name in PACKAGES}
    here = {"speculators_compat": __version__, **{name: item.version for name, item in found.items() if item}}
    here["python"] = platform.python_version()
    manifest = read_json(config.data_dir / MANIFEST)
    recorded = manifest.get("versions") if isinstance(manifest, dict) else None
    there = {str(name): str(version) for name, version in recorded.items()} if isinstance(recorded, dict) else {}
    return [(name, here.get(name, ""), there.get(name, "")) for name in sorted(here.keys() | there.keys())]


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    caption = _text(picture.caption)
    return (
        f"<h2>{_text(picture.title)}</h2><figure>"
        f'<img alt="{_text(picture.title)}: {caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in head)}</tr>" if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{titles}{body}</table>"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
