"""vLLM 0.20's CPU engine fails to report which CPUs its ranks are bound to when they are bound to none."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap


def _parsed(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        wrapped(*args, **kwargs)
    except IndexError:
        if not instance.skip_setup:  # set before the report is composed: nobind was asked for, and understood
            raise


DRIFT = Drift(
    id="nobind_message",
    title="CPU ranks that are bound to nothing start",
    symptom="IndexError: list index out of range (vllm/utils/ompmultiprocessing.py)",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.20.0",
    until="0.21.0",
    upstream="https://github.com/vllm-project/vllm/blob/v0.20.2/vllm/utils/ompmultiprocessing.py#L178",
    # What the method does shows in no signature, so the release range decides.
    sites=(wrap("vllm.utils.ompmultiprocessing:OMPProcessManager._parse_omp_threads_bind_env", _parsed),),
)
