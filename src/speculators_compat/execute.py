"""Runs a user's own, unmodified script under the shim, in every Python process that it starts."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from .drift import UsageError

__all__ = ["INTERPRETER", "bootstrap_dir", "command", "environment", "execute"]

INTERPRETER = "SPECULATORS_COMPAT_EXEC"
USAGE = "Call it as: speculators-compat exec SCRIPT [ARGS...], or exec -m MODULE [ARGS...]."


def bootstrap_dir() -> Path:
    """Folder of the ``sitecustomize`` that activates the shim when an interpreter starts."""
    return Path(__file__).with_name("_bootstrap")


def command(arguments: Sequence[str]) -> list[str]:
    """Command line for the script or module.

    Args:
        arguments: What followed ``exec``.

    Returns:
        The interpreter's arguments, itself included.

    Raises:
        UsageError: There is no such script or module, or none was named.
    """
    if not arguments or list(arguments) == ["-m"]:
        raise UsageError("exec needs a script or a module.", "none", USAGE)
    if arguments[0] == "-m":
        top = arguments[1].partition(".")[0]
        # -m looks in the current folder first, as the interpreter will.
        if importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
            raise UsageError("exec -m needs a module that can be imported.", f"no module {arguments[1]}", USAGE)
    elif not Path(arguments[0]).exists():
        raise UsageError("exec needs an existing script.", f"no file {arguments[0]}", USAGE)
    return [sys.executable, *arguments]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes every child interpreter activate the shim first.

    Spawned processes (``multiprocessing``'s spawn, vLLM's workers) import the script again before
    anything else, so an import hook in the parent does not reach them; ``sitecustomize`` does.
    """
    path = [str(bootstrap_dir()), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {**base, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), INTERPRETER: sys.executable}


def execute(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the script.

    Args:
        arguments: Script or ``-m`` module, and its arguments.

    Raises:
        UsageError: There is no such script or module.
    """
    line = command(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(line[0], line, environment(os.environ))  # noqa: S606 (replaces this process on purpose)
