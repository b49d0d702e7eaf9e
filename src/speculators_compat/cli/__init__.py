"""The command line: arguments and exit codes only. Each module registers its commands, in the order of the help."""

from . import steps, samples, serving, environment  # isort: skip
from ._app import app, main

__all__ = ["app", "environment", "main", "samples", "serving", "steps"]
