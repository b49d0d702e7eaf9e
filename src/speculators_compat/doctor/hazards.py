"""What in the environment, rather than in the code, makes a run fail or go unpatched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from ..activation import DISABLE, SWITCH
from ..drifts.fork_after_cuda import START_METHOD, accelerator_in_use
from .integrity import examine

__all__ = ["PLUGIN_SWITCH", "find", "of_files"]

PLUGIN_SWITCH = "VLLM_PLUGINS"
GROUP, PLUGIN = "vllm.general_plugins", "speculators_compat"


def find(files: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """Every hazard, those that stand in the way first.

    Args:
        files: What :func:`of_files` found.

    Returns:
        ``id``; ``level``: ``problem`` (a run will not do what it should) or ``warning`` (it may); ``text``; ``next``,
        the way out.
    """
    found = [*_switches(), *_fork(), *_plugins(), *_edits(files)]
    return sorted(found, key=lambda hazard: hazard["level"] != "problem")


def of_files(present: list[str]) -> dict[str, dict[str, Any]]:
    """Package to what :func:`.integrity.examine` says of its files."""
    return {module: examine(module) for module in present}


def _hazard(name: str, level: str, text: str, way_out: str) -> dict[str, str]:
    return {"id": name, "level": level, "text": text, "next": way_out}


def _switches() -> Iterator[dict[str, str]]:
    if os.environ.get(SWITCH, "1") == "0":
        yield _hazard("switched_off", "problem", f"{SWITCH}=0 switches every drift off", f"Unset {SWITCH}.")
    elif os.environ.get(DISABLE, "").strip():
        names = os.environ[DISABLE]
        yield _hazard("drifts_off", "warning", f"{DISABLE} switches drifts off: {names}", f"Unset {DISABLE}.")


def _fork() -> Iterator[dict[str, str]]:
    """A forked process cannot use CUDA; the drift leaves alone who has chosen fork."""
    in_use = "torch" in sys.modules and accelerator_in_use()
    if os.environ.get(START_METHOD) == "fork":
        text = f"{START_METHOD}=fork: workers fail if the process that starts them has initialised CUDA"
        now = ", and importing speculators has" if in_use else ""
        yield _hazard(
            "fork_after_cuda",
            "problem" if in_use else "warning",
            text + now,
            f"Unset {START_METHOD}, or set it to spawn.",
        )
    elif in_use:
        text = "something initialises CUDA while speculators is imported; workers will be spawned, not forked"
        yield _hazard("cuda_initialised", "warning", text, 'Keep `if __name__ == "__main__":` around your script.')


def _plugins() -> Iterator[dict[str, str]]:
    """The entry point that vLLM calls in every process it starts: a filter that leaves it out keeps it from some."""
    unpatched = "processes of vLLM that speculators' own extension does not reach stay unpatched"
    allowed = os.environ.get(PLUGIN_SWITCH)
    if allowed is not None and PLUGIN not in allowed.split(","):
        way_out = f"Set {PLUGIN_SWITCH}={','.join(filter(None, [*allowed.split(','), PLUGIN]))}, or unset it."
        yield _hazard(
            "plugin_filtered", "warning", f"{PLUGIN_SWITCH}={allowed!r} leaves {PLUGIN} out: {unpatched}", way_out
        )
    elif not any(point.name == PLUGIN for point in metadata.entry_points(group=GROUP)):
        text = f"no installed entry point {PLUGIN} in {GROUP}: {unpatched}"
        yield _hazard(
            "plugin_missing", "warning", text, "Install speculators-compat with pip; a path alone is not enough."
        )


def _edits(files: dict[str, dict[str, Any]]) -> Iterator[dict[str, str]]:
    for module, result in files.items():
        if result["state"] == "edited":
            text = f"installed files of {module} differ from their wheel: {result['reason']}"
            way_out = f"Install {module} again: pip install --force-reinstall --no-deps, the same version."
            yield _hazard("edited_files", "warning", text, way_out)
