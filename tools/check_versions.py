"""Fail unless the modules that Python imports here have the versions that were named.

An environment is worth its name only when this passes: a resolver may pick another release, and a
second distribution may shadow the module. Usage: ``check_versions.py vllm==0.16.0 torch==2.10.0``.
Exit code 1 on a difference.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys

from packaging.requirements import Requirement
from packaging.version import Version


def imported_version(name: str) -> str:
    """The version that the imported module states, else that of its distribution.

    speculators is imported as users import it: beside transformers 5 it does not import without the shim.
    """
    with contextlib.suppress(ModuleNotFoundError):  # an environment without the package is checked as it is
        importlib.import_module("speculators_compat")
    module = importlib.import_module(name)
    return getattr(module, "__version__", None) or importlib.metadata.version(name)


def main(arguments: list[str]) -> int:
    """Compare each named version with the imported one, local build tags (``+cpu``) aside."""
    failed = False
    for requirement in map(Requirement, arguments):
        found = imported_version(requirement.name)
        right = requirement.specifier.contains(Version(found).public, prereleases=True)
        failed |= not right
        print(f"{requirement}: imported {found}{'' if right else ' (WRONG)'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
