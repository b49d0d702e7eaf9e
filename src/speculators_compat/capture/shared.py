"""Memory that the generator's process and its worker share, and that no crash leaves behind.

A segment is a file in ``/dev/shm``, reserved in full when it is made (a full folder is an error then, not a bus error
in the middle of a step) and unlinked as soon as the worker has mapped it: from then on the kernel frees it with the
last process that maps it, however that process ends. Its owner holds a lock on the file, so that what a killed process
left between those two moments can be told from what another one is just making.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
from pathlib import Path

from ..drift import UsageError

__all__ = ["FOLDER", "PREFIX", "Segment", "free_bytes", "sweep"]

FOLDER = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is, not a place for temporary files
PREFIX = "speculators-compat-"


class Segment:
    """A named piece of shared memory, mapped into this process.

    Attributes:
        name: File name in :data:`FOLDER`.
        map: The mapping; it lives as long as a tensor on it.
    """

    def __init__(self, name: str, mapping: mmap.mmap) -> None:
        self.name, self.map = name, mapping

    @classmethod
    def create(cls, size: int) -> Segment:
        """Make and map a segment of ``size`` bytes, after removing what dead owners left.

        Raises:
            UsageError: The folder cannot hold it, or this process may not write there.
        """
        sweep()
        try:
            return cls._create(size)
        except OSError as error:
            raise UsageError(
                f"{FOLDER} must hold {size / 1e6:,.0f} MB for the hidden states of a few steps.",
                f"{free_bytes() / 1e6:,.0f} MB free ({error.strerror})",
                "Give the machine or container more shared memory (docker: --shm-size or --ipc=host), or lower "
                "max_num_batched_tokens.",
            ) from error

    @classmethod
    def _create(cls, size: int) -> Segment:
        while True:
            path = FOLDER / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                # The mapping keeps a duplicate of the descriptor, and with it the lock.
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink == 0:
                    continue  # a sweep took the newborn file before the lock was there
                os.posix_fallocate(file, 0, size)
                return cls(path.name, mmap.mmap(file, size))
            except BaseException:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
            finally:
                os.close(file)

    @classmethod
    def attach(cls, name: str) -> Segment:
        """Map a segment that another process made."""
        file = os.open(FOLDER / name, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(name, mmap.mmap(file, os.fstat(file).st_size))
        finally:
            os.close(file)

    def unlink(self) -> None:
        """Take the name away; the memory stays until nobody maps it. Doing it twice is once."""
        with contextlib.suppress(FileNotFoundError):
            (FOLDER / self.name).unlink()


def free_bytes() -> int:
    """Bytes that the folder of shared memory has left; 0 where there is no such folder."""
    try:
        found = os.statvfs(FOLDER)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def sweep() -> list[str]:
    """Remove segments whose owner is dead, and only those.

    Returns:
        Names of the removed files.
    """
    removed = []
    for path in FOLDER.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, another user's, or in use
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed.append(path.name)
            finally:
                os.close(file)
    return removed
