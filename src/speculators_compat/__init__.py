"""Makes speculators' hidden-states generator and trainer work on the vLLM that is installed.

``import speculators_compat`` before ``speculators`` is all that a script needs: importing it registers import hooks
that mend each incompatibility when the module that meets it is imported. It imports neither torch, vLLM, transformers
nor speculators. ``SPECULATORS_COMPAT=0`` switches it off, ``SPECULATORS_COMPAT_DISABLE=id,id`` single fixes.
"""

from __future__ import annotations

from .activation import activate, deactivate, outcomes
from .drift import DriftError, State, UsageError

__all__ = ["DriftError", "State", "UsageError", "__version__", "activate", "deactivate", "outcomes"]

__version__ = "0.1.0"

activate()
