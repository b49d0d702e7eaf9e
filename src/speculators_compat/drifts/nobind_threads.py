"""vLLM 0.11.0's CPU workers do not know ``VLLM_CPU_OMP_THREADS_BIND=nobind``; they read it as a list of CPUs.

Its word for "bind nothing" is ``all``, one for each rank.
"""

from __future__ import annotations

import os
from typing import Any

from ..drift import Drift, wrap
from ._generator import GENERATOR

BIND = "VLLM_CPU_OMP_THREADS_BIND"


def _in_its_words(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if os.environ.get(BIND) != "nobind":
        return wrapped(*args, **kwargs)
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    # Only for these workers: they are spawned, and read the variable as they start.
    os.environ[BIND] = "|".join(["all"] * int(config.parallel_config.world_size))
    try:
        return wrapped(*args, **kwargs)
    finally:
        os.environ[BIND] = "nobind"


DRIFT = Drift(
    id="nobind_threads",
    title="nobind reaches the CPU workers in the word that they know",
    symptom="libnuma: Warning: unparseable cpu description `nobind' (and the worker dies without a traceback)",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until="0.11.1",  # which takes nobind
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/worker/cpu_worker.py#L63",
    # Which words a worker knows shows in no signature, so the release range decides.
    sites=(wrap(f"{GENERATOR}:MultiprocExecutor", _in_its_words),),
)
