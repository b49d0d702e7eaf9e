"""Makes speculators' hidden-states generator and trainer work on the vLLM that is installed.

``import speculators_compat`` before ``speculators`` is all that a script needs: from then on each incompatibility is
mended when the module that meets it is imported. It imports neither torch, vLLM, transformers nor speculators, and
reads its own catalogue only when speculators is imported. ``SPECULATORS_COMPAT=0`` switches it off,
``SPECULATORS_COMPAT_DISABLE=id,id`` single fixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import trigger

if TYPE_CHECKING:
    from .activation import activate, deactivate, outcomes
    from .drift import DriftError, State, UsageError

__all__ = ["DriftError", "State", "UsageError", "__version__", "activate", "deactivate", "outcomes"]

__version__ = "0.1.0"

_HOMES = {
    "activate": "activation",
    "deactivate": "activation",
    "outcomes": "activation",
    "DriftError": "drift",
    "State": "drift",
    "UsageError": "drift",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562): importing the package must cost next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


trigger.arm()
