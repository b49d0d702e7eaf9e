"""vLLM split a step in two: ``execute_model`` returns None and ``sample_tokens`` must follow before the next step."""

from __future__ import annotations

from typing import Any

import wrapt

from ..drift import Drift, wrap
from ._generator import GENERATOR, from_generator


class TwoPhaseExecutor(wrapt.ObjectProxy):
    """An executor whose ``execute_model`` completes the step, as it did up to vLLM 0.11.0.

    The executor inside keeps its own protocol: only calls from outside are adapted.
    """

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self._self_output: Any = None

    def execute_model(self, scheduler_output: Any) -> Any:
        """Run one step and return its ``ModelRunnerOutput``."""
        output = self.__wrapped__.execute_model(scheduler_output)
        if output is None:
            output = self.__wrapped__.sample_tokens(None)
        self._self_output = output
        return output

    def sample_tokens(self, grammar_output: Any = None) -> Any:
        """The step is complete already; hands out its output again (speculators 0.4 calls this itself)."""
        return self._self_output


def _two_phases() -> bool:
    return hasattr(from_generator("MultiprocExecutor"), "sample_tokens")


def _proxied(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return TwoPhaseExecutor(wrapped(*args, **kwargs))


DRIFT = Drift(
    id="two_phase_execution",
    title="sample_tokens completes a step",
    symptom="RuntimeError: Worker failed with error 'State error: sample_tokens() must be called after execute_model()",
    call_site="data_generation/vllm_hidden_states_generator.py:generate",
    speculators=">=0.3.0,<0.5",
    since="0.11.1",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/v1/executor/multiproc_executor.py#L265",
    probe=_two_phases,
    sites=(wrap(f"{GENERATOR}:MultiprocExecutor", _proxied),),
)
