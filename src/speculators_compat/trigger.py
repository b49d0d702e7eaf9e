"""Defers activation until speculators is about to be imported, so that ``import speculators_compat`` stays light.

wrapt, packaging and the catalogue take longer to import than everything else here; a process that never imports
speculators never pays for them. This module imports nothing but ``sys``.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["arm", "ask_others", "disarm"]

PACKAGE = "speculators"


class _Trigger:
    """A meta path finder that finds nothing: it activates the shim, then lets the other finders answer."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != PACKAGE:
            return None
        from . import activation

        # It disarms this trigger last: an activation that fails is tried again at the next import.
        activation.activate()
        # Activation has put wrapt's finder in front of the one that is being asked: this import must see it too. The
        # trigger itself is still there while activation, which asks what is installed, is under way.
        return ask_others(self, name, path, target)


def ask_others(asker: Any, name: str, path: Any, target: Any) -> Any:
    """The first answer of the meta path's finders, those of the asker's kind left out."""
    for finder in list(sys.meta_path):
        spec = None if isinstance(finder, type(asker)) else finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


_trigger = _Trigger()


def arm() -> None:
    """Activate now if speculators is imported already, else when it is about to be."""
    if PACKAGE in sys.modules:
        from . import activation

        activation.activate()
    elif _trigger not in sys.meta_path:
        sys.meta_path.insert(0, _trigger)


def disarm() -> None:
    """Take the trigger out of the meta path."""
    if _trigger in sys.meta_path:
        sys.meta_path.remove(_trigger)
