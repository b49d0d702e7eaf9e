"""Processes that are spawned with the shim: a spawned interpreter starts from nothing, and the shim with it."""

from __future__ import annotations

from multiprocessing.context import SpawnContext, SpawnProcess

__all__ = ["ShimmedProcess", "ShimmedSpawn"]


class ShimmedProcess(SpawnProcess):
    """A spawned process that imports this package before anything of its own.

    The child unpickles the process it is: first its class, which imports this package and so arms the shim, then the
    arguments, and with them whatever they need of speculators.
    """


class ShimmedSpawn(SpawnContext):
    """The start method ``spawn`` with :class:`ShimmedProcess`."""

    Process = ShimmedProcess
