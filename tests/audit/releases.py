"""Sources of the published releases: from the cache, or fetched into it where AUDIT_FETCH=1 says so."""

from __future__ import annotations

import functools
import os

import pytest

from speculators_compat.audit.fetch import cache_folder, fetch
from speculators_compat.audit.sources import Source

# One of each minor release; 0.33.0 exists only as the CUDA build.
VLLM = (
    "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.18.1",
    "0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0",
    "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)  # fmt: skip
SPECULATORS = ("0.3.0", "0.4.0.1")
# They drive vLLM through a server only: nothing in them calls it.
WITHOUT_GENERATOR = ("0.5.0", "0.6.0", "0.7.0", "0.8.1", "0.9.0")


@functools.cache
def source(package: str, release: str) -> Source:
    """The sources of a release; skips the test where they are not in the cache."""
    kept = cache_folder() / "sources" / f"{package}-{release}" / package
    if not kept.is_dir() and os.environ.get("AUDIT_FETCH") != "1":
        pytest.skip(
            f"needs the sources of {package} {release}: `make audit` fetches them, see docs/audit.md "
            f"(https://pypi.org/project/{package}/{release}/)"
        )
    return fetch(package, release)
