"""Files that speculators removed and ``absent/`` supplies again, and the release that they are restored from."""

from __future__ import annotations

from .drift import Drift
from .versions import matches

__all__ = ["FILES", "RELEASE", "REMOVED", "concerns", "release_at"]

#: The last release that has the files; what stands in for them makes the same calls.
RELEASE = "0.4.0.1"
REMOVED = ">=0.5"
FILES = tuple(
    f"data_generation/{name}.py" for name in ("config_generator", "custom_worker", "vllm_hidden_states_generator")
)


def release_at(call_site: str, installed: str) -> str:
    """The release of speculators whose code stands at a call site.

    Args:
        call_site: As in a drift's record, ``file:name``.
        installed: The installed release.

    Returns:
        ``installed``, or the restored release where the file is one that was removed: upstream's drifts of that file
        strike there as they did, and their fixes apply.
    """
    return RELEASE if call_site.startswith(FILES) and matches(installed, REMOVED) else installed


def concerns(drift: Drift, installed: str) -> bool:
    """Whether an installed speculators, or what stands in for its removed files, has a drift's call site.

    Args:
        drift: Any of the catalogue.
        installed: The installed release; one that cannot be read counts as having it.
    """
    return matches(release_at(drift.call_site, installed), drift.speculators) is not False
