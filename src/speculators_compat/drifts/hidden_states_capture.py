"""Upstream's capture and loop are silently wrong in many ways; hooks on layers and a corrected loop replace them."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute, supply, wrap
from ._generator import GENERATOR

OURS = "speculators_compat.capture.extension.HiddenStatesWorkerExtension"


def _our_extension(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped(*args, **{**kwargs, "worker_extension_cls": OURS})


def _connected(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    from ..capture.generator import connect

    wrapped(*args, **kwargs)
    connect(instance)


def _generate(original: Any) -> Any:
    from ..capture.generator import generate

    return generate


def _stream(missing: Any) -> Any:
    from ..capture.generator import stream

    return stream


DRIFT = Drift(
    id="hidden_states_capture",
    title="Every row of hidden states reaches its prompt",
    symptom=(
        "no error: chunked prefill shifts rows (0.3.0), results come in string order from 11 prompts on (0.4), "
        "preempted prompts take other prompts' rows, layers come in ascending order whatever was asked for"
    ),
    call_site="data_generation/vllm_hidden_states_generator.py:generate, data_generation/custom_worker.py",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/speculators/issues/279",
    process="both",
    silent=True,
    sites=(
        wrap(f"{GENERATOR}:ParallelConfig", _our_extension),
        wrap(f"{GENERATOR}:VllmHiddenStatesGenerator.__init__", _connected),
        substitute(f"{GENERATOR}:VllmHiddenStatesGenerator.generate", _generate),
        supply(f"{GENERATOR}:VllmHiddenStatesGenerator.stream", _stream),
    ),
    requires=("generator_options", "rpc_futures", "two_phase_execution"),
)
