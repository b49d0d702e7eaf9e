"""Stopping a process that was started in a session of its own, and everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

__all__ = ["stop"]


def stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask the process to stop as Ctrl-C would, then end what is left of its group.

    Args:
        process: Started with ``start_new_session=True``; it may have ended already.
        grace_s: Seconds that it has to stop by itself.
    """
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(grace_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
