"""The tested pairs, read from the shipped ``matrix.toml``."""

from __future__ import annotations

import functools
import sys
from importlib import resources
from typing import Any

from packaging.version import Version

from .versions import release

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

__all__ = ["is_newer_than_tested", "is_tested", "rows"]


@functools.lru_cache(maxsize=1)
def rows() -> tuple[dict[str, Any], ...]:
    """Every row of the matrix, as written."""
    text = resources.files(__package__).joinpath("matrix.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["row"])


def is_tested(vllm: str, speculators: str) -> bool:
    """Whether a row holds exactly this pair of release numbers."""
    pair = (release(vllm), speculators)
    return any((release(row["vllm"]), row["speculators"]) == pair for row in rows())


def is_newer_than_tested(vllm: str) -> bool:
    """Whether a vLLM is newer than the newest row; False when its version cannot be read."""
    number = release(vllm)
    return number != "unknown" and Version(number) > max(Version(release(row["vllm"])) for row in rows())
