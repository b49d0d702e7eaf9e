"""Which of speculators' trainers is installed, by what differs between them."""

from __future__ import annotations

from .. import versions

__all__ = ["has_command", "has_muon", "has_noise", "has_schema", "installed_release", "trains_on_rows"]


def installed_release() -> str:
    """Release number of the installed speculators; ``unknown`` if there is none."""
    found = versions.installed("speculators")
    return found.release if found else "unknown"


def trains_on_rows() -> bool:
    """Whether it reads prepared rows and, beside them, hidden states; before, files that hold a whole sample."""
    return _is(">=0.5")


def has_schema() -> bool:
    """Whether its options are a typed configuration (``train/config/schema.py``)."""
    return _is(">=0.7")


def has_command() -> bool:
    """Whether the package has the whole training command (``train/cli.py``); before, a script of the repository."""
    return _is(">=0.8")


def has_muon() -> bool:
    """Whether torch has the optimizer that the trainers from 0.7 on take where nobody names one: from 2.9 on.

    https://docs.pytorch.org/docs/2.9/generated/torch.optim.Muon.html
    """
    found = versions.installed("torch")
    return found is None or versions.matches(found.release, ">=2.9") is not False


def has_noise() -> bool:
    """Whether it can add noise to the input states."""
    return _is("<0.9")


def _is(release_range: str) -> bool:
    return versions.matches(installed_release(), release_range) is True
