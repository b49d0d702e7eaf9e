"""vLLM 0.15's Kimi-K2.5 always builds its vision tower, on the current CUDA device; a CPU worker fails there."""

from __future__ import annotations

from typing import Any

from .. import versions
from ..drift import Drift, UsageError, wrap
from ._generator import GENERATOR
from ._memory import accelerator_present


def _refusing(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    config = wrapped(*args, **kwargs)
    if config.hf_config.model_type == "kimi_k25" and not accelerator_present():
        engine = versions.installed("vllm")
        raise UsageError(
            "Kimi-K2.5 on a CPU needs vLLM 0.16 or newer: before, its vision tower is built on a CUDA device.",
            f"{engine.distribution} {engine.version}" if engine else "another vLLM",
            "Install a newer vLLM, or extract on a GPU.",
        )
    return config


DRIFT = Drift(
    id="kimi_k25_on_cpu",
    title="Kimi-K2.5 is refused on a CPU where vLLM builds its vision tower on CUDA",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.15.0",  # the first with Kimi-K2.5
    until="0.16.0",  # the tower is left out where no picture may come
    upstream="https://github.com/vllm-project/vllm/blob/v0.15.0/vllm/model_executor/models/kimi_k25.py#L323",
    sites=(wrap(f"{GENERATOR}:ModelConfig", _refusing),),
)
