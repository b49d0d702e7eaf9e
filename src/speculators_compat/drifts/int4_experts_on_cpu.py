"""vLLM's CPU build has no kernel for INT4 experts as Kimi-K2.5 stores them; it says so only in a worker, if at all."""

from __future__ import annotations

from typing import Any

from .. import versions
from ..drift import Drift, UsageError, wrap
from ._generator import GENERATOR

#: First release with a CPU kernel for INT4 experts (fused_moe/experts/cpu_moe.py, ``CPUExpertsInt4``).
KERNEL_SINCE = "0.24.0"
#: That kernel still leaves out groups of 32 (its weight key is ``kInt4Static``) and sigmoid routing, up to 0.32.
KERNEL_GROUPS_WITHOUT = (32,)
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")


def scheme_of_experts(config: Any) -> dict[str, Any] | None:
    """The weight scheme of INT4 experts in compressed-tensors' packed format.

    Args:
        config: vLLM's ``ModelConfig``.

    Returns:
        ``num_bits``, ``group_size``, ...; None where the experts are not stored so, or there are none.
    """
    text = config.hf_text_config
    if not any(getattr(text, name, None) for name in EXPERTS):
        return None
    quantised = getattr(config.hf_config, "quantization_config", None) or getattr(text, "quantization_config", None)
    if not isinstance(quantised, dict) or quantised.get("quant_method") != "compressed-tensors":
        return None
    for group in (quantised.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        packed = (group.get("format") or quantised.get("format")) == "pack-quantized"
        if packed and weights.get("num_bits") == 4 and not group.get("input_activations"):
            return dict(weights)
    return None


def _refusing(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from vllm.platforms import current_platform

    config = wrapped(*args, **kwargs)
    scheme = scheme_of_experts(config) if current_platform.is_cpu() else None
    engine = versions.installed("vllm")
    if scheme is None or engine is None:
        return config
    sigmoid = getattr(config.hf_text_config, "scoring_func", None) == "sigmoid"
    old = versions.in_range(engine.version, None, KERNEL_SINCE)
    if old or sigmoid or scheme.get("group_size") in KERNEL_GROUPS_WITHOUT:
        raise UsageError(
            "The verifier's experts must be stored in a form that the CPU engine has a kernel for: it has none for "
            f"W4A16 pack-quantized experts in groups of {scheme.get('group_size')} (compressed-tensors).",
            f"{engine.distribution} {engine.version} on a CPU",
            "Extract on a GPU, where vLLM runs them with Marlin, or from a bfloat16 checkpoint of the same model.",
        )
    return config


DRIFT = Drift(
    id="int4_experts_on_cpu",
    title="INT4 experts are refused where the CPU engine has no kernel for them",
    symptom="AttributeError: '_OpNamespace' '_C' object has no attribute 'gptq_marlin_repack'",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.16.0/vllm/model_executor/layers/quantization/"
    "compressed_tensors/compressed_tensors_moe.py",
    sites=(wrap(f"{GENERATOR}:ModelConfig", _refusing),),
)
