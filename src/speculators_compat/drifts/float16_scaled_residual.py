"""In float16 vLLM's DeepSeek layers carry a residual stream that is scaled down; captured states are scaled with it."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, UsageError, wrap
from ._generator import GENERATOR

#: Architectures whose decoder layers scale the stream (deepseek_v2.py, openpangu.py); others use the factor elsewhere.
SCALED = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "pangu_ultra_moe")


def _refusing(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    config = wrapped(*args, **kwargs)
    text = config.hf_text_config
    scale = getattr(text, "routed_scaling_factor", None)
    if config.dtype is torch.float16 and text.model_type in SCALED and scale not in (None, 1.0):
        raise UsageError(
            "This verifier's states must be captured in bfloat16 or float32: in float16 vLLM divides its residual "
            f"stream by routed_scaling_factor ({scale}).",
            "dtype float16",
            "Pass dtype='bfloat16'.",
        )
    return config


DRIFT = Drift(
    id="float16_scaled_residual",
    title="float16 is refused where vLLM scales the residual stream in it",
    symptom="no error: states of DeepSeek and Kimi models are smaller by routed_scaling_factor from layer 0 on",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.16.0/vllm/model_executor/models/deepseek_v2.py",
    silent=True,
    sites=(wrap(f"{GENERATOR}:ModelConfig", _refusing),),
)
