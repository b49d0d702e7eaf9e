"""vLLM's CPU experts build their activation anew in every forward pass, which needs a config that is no longer set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..drift import Drift, substitute
from ._generator import WORKER_SETUP


def _class_for_an_instance(activation: Any) -> Callable[..., Any]:
    """Hand out the class where an instance was asked for: its native forward is static and needs no instance."""

    def construct(**options: Any) -> Any:
        return activation

    return construct


DRIFT = Drift(
    id="cpu_moe_activation",
    title="CPU experts compute their activation without a config",
    symptom="AssertionError: Current vLLM config is not set.",
    call_site="vllm/model_executor/layers/fused_moe/cpu_fused_moe.py:cpu_fused_moe_torch",
    speculators=">=0.3.0",
    # The table of activations holds a lambda, which no probe can look into without running it: the range decides.
    since="0.20.0",
    until="0.25.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.21.0/vllm/model_executor/layers/fused_moe/cpu_fused_moe.py#L53",
    process="worker",
    tripwire=WORKER_SETUP,
    sites=(substitute("vllm.model_executor.layers.fused_moe.cpu_fused_moe:SiluAndMul", _class_for_an_instance),),
)
