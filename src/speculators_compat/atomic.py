"""Files that are complete or absent: written under another name, flushed to the disk, and renamed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["PARTIAL", "atomic_file", "write_json"]

PARTIAL = ".partial-"


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only once it is complete and on the disk.

    Args:
        path: Final name.

    Yields:
        A binary file to write to. If the block raises, nothing is left behind.

    Raises:
        OSError: Writing failed.
    """
    # Host and process keep writers apart; the name must not end in "pt" even while it is being written.
    partial = path.with_name(f"{PARTIAL}{path.name}.{platform.node()}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, creating the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")
