"""vLLM resumes a preempted request only after the output of its last steps is in; the generator never hands any in."""

from __future__ import annotations

from typing import Any

from ..calls import accepts
from ..drift import Drift, Site
from ._generator import GENERATOR, from_generator

ARGUMENT = "drop_stale_output"


def _resuming_at_once(scheduler: Any) -> Any:
    """A scheduler that forgets what a preempted request's steps had sampled: prefill reads no sampled token."""

    def _preempt_request(self: Any, request: Any, timestamp: float, **options: Any) -> None:
        scheduler._preempt_request(self, request, timestamp, **{**options, ARGUMENT: True})

    return type(scheduler.__name__, (scheduler,), {"_preempt_request": _preempt_request})


def _waits_for_output() -> bool:
    method = getattr(from_generator("Scheduler"), "_preempt_request", None)
    return method is not None and accepts(method, ARGUMENT)


DRIFT = Drift(
    id="preempted_requests",
    title="Preempted prompts are computed again",
    symptom="no tokens are scheduled although the KV cache is free: The KV cache must hold a whole prompt",
    call_site="data_generation/vllm_hidden_states_generator.py:generate",
    speculators=">=0.3.0,<0.5",
    since="0.27.1",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/v1/core/sched/scheduler.py#L714",
    probe=_waits_for_output,
    # The innermost change of the class, as the first in the order of ids: the others wrap its construction.
    sites=(Site(f"{GENERATOR}:Scheduler", _resuming_at_once, "wrap"),),
)
