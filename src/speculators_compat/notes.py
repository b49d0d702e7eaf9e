"""What a failure says of this library: the note under a traceback through patched code, and the name that moved.

The error itself stays what it is: callers that catch it by type are not changed. On Python 3.10, which shows no notes,
the note is logged once.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from . import matrix, trigger, versions
from .drift import DriftError, UsageError

__all__ = ["MovedNameError", "NamingFinder", "add", "situation"]

log = logging.getLogger("speculators_compat")

MARK = "speculators-compat: "
PACKAGE, UPSTREAM = "speculators", "vllm"


class MovedNameError(ImportError):
    """A module of speculators imports a name that the installed vLLM does not have, and no drift mends it."""


def add(error: BaseException, drift_id: str) -> None:
    """Put the note under ``error``, or add a further drift's id to the one that is there.

    Errors of this library's own say everything themselves and get none.
    """
    if isinstance(error, (UsageError, DriftError)):
        return
    ids: list[str] = getattr(error, "_compat_drift_ids", [])
    if drift_id in ids:
        return
    first, ids = not ids, [*ids, drift_id]
    text = f"{MARK}raised through patched code ({', '.join(ids)}) on {situation()}. Run: speculators-compat doctor"
    try:
        error._compat_drift_ids = ids  # type: ignore[attr-defined]
        others = [note for note in getattr(error, "__notes__", []) if not note.startswith(MARK)]
        error.__notes__ = [*others, text]  # type: ignore[attr-defined]
    except AttributeError:  # an exception with slots
        return
    if first and sys.version_info < (3, 11):
        log.error("%s", text)


def situation() -> str:
    """The installed pair, and how it stands to the tested ones, in words."""
    vllm, speculators = versions.installed(UPSTREAM), versions.installed(PACKAGE)
    pair = ", ".join(
        f"{name} {found.version if found else 'not installed'}"
        for name, found in (("vLLM", vllm), ("speculators", speculators))
    )
    if vllm is None or speculators is None:
        return pair
    known = matrix.standing(vllm.version, speculators.version)
    return pair if known.state == "tested" else f"{pair} ({known.words})"


class NamingFinder:
    """A meta path finder that finds nothing itself: it lets speculators' modules say which name of vLLM is missing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders answer, its loader wrapped."""
        if not name.startswith(f"{PACKAGE}."):
            return None
        spec = trigger.ask_others(self, name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _NamingLoader(spec.loader)
        return spec


class _NamingLoader:
    """The module's own loader, with a better message for a name that vLLM no longer has."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        try:
            self._loader.exec_module(module)
        except MovedNameError:
            raise
        except ImportError as error:
            home = error.name or ""
            # vLLM as a whole is missing, or something inside it is: that is not a name that moved.
            if not home.startswith(f"{UPSTREAM}.") or _raised_inside_vllm(error):
                raise
            raise MovedNameError(_message(module.__name__, error), name=error.name, path=error.path) from error


def _raised_inside_vllm(error: ImportError) -> bool:
    """Whether the import statement that failed is one of vLLM's own."""
    traceback, last = error.__traceback__, ""
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        last = last if name.startswith("importlib") else name
        traceback = traceback.tb_next
    return last.partition(".")[0] == UPSTREAM


def _message(module: str, error: ImportError) -> str:
    return (
        f"{module} needs a name that this vLLM does not have, and no drift mends it: {error.msg}. "
        f"Found: {situation()}. "
        "Install a tested pair (docs/compatibility.md); speculators-compat audit lists whatever else does not fit."
    )
