"""vLLM 0.18 ends a CPU worker unless two library names are in LD_PRELOAD; before and after, they are a matter of speed.

The check reads the variable's text and loads nothing. vLLM 0.19 made it a warning; so does this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import wrapt

from ..drift import Drift, substitute
from ._generator import WORKER_SETUP

log = logging.getLogger("speculators_compat.worker")

VARIABLE = "LD_PRELOAD"
LIBRARIES = ("libtcmalloc", "libiomp")


class _Environment(wrapt.ObjectProxy):
    def get(self, name: str, default: Any = None) -> Any:
        value = self.__wrapped__.get(name, default)
        return all_named(value) if name == VARIABLE else value


class _Os(wrapt.ObjectProxy):
    """The module ``os`` as the CPU worker sees it; child processes get the variable as it is."""

    def __init__(self, os: Any) -> None:
        super().__init__(os)
        self._self_environ = _Environment(os.environ)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment, in which the libraries' names are always read."""
        return self._self_environ


def all_named(value: str | None) -> str:
    """The variable's text with the names that are missing in it."""
    missing = [name for name in LIBRARIES if name not in (value or "")]
    if missing:
        log.info("%s does not name %s: vLLM's CPU engine may be slower", VARIABLE, " and ".join(missing))
    return " ".join([value or "", *missing]).strip()


DRIFT = Drift(
    id="cpu_preloaded_libraries",
    title="CPU workers start without preloaded libraries",
    symptom="RuntimeError: libtcmalloc is not found in LD_PRELOAD.",
    call_site="vllm/v1/worker/cpu_worker.py:CPUWorker.init_device",
    speculators=">=0.3.0",
    # What the check does shows in no signature, so the release range decides.
    since="0.18.0",
    until="0.19.0",
    upstream="https://github.com/vllm-project/vllm/blob/v0.18.1/vllm/v1/worker/cpu_worker.py#L57",
    process="worker",
    tripwire=WORKER_SETUP,
    sites=(substitute("vllm.v1.worker.cpu_worker:os", _Os),),
)
