"""Finds the decoder inside a model: the module that owns the list of decoder layers."""

from __future__ import annotations

from typing import Any

__all__ = ["find_decoder"]


def find_decoder(model: Any) -> tuple[Any, str]:
    """Find the language model's decoder in a text model or a multimodal wrapper.

    Wrappers (Kimi-K2.5, Qwen-VL and every other ``SupportsMultiModal`` model) answer ``get_language_model()``; what it
    returns is a causal language model with ``.model`` or, for Kimi-K2.5 on vLLM 0.15, the decoder itself
    (https://github.com/vllm-project/vllm/blob/v0.15.0/vllm/model_executor/models/kimi_k25.py#L347).

    Args:
        model: ``worker.model_runner.model``.

    Returns:
        The decoder (it has ``.layers``) and the attribute path that leads to it, for messages.

    Raises:
        ValueError: No attribute path leads to a list of layers.
    """
    language, path = model, "model"
    if callable(getattr(model, "get_language_model", None)):
        language, path = model.get_language_model(), "get_language_model()"
    # Two nested ``.model`` are as deep as any wrapper goes (a causal LM around a decoder, a wrapper around that).
    for _ in range(3):
        if _has_layers(language):
            return language, path
        inner = getattr(language, "model", None)
        if inner is None:
            break
        language, path = inner, f"{path}.model"
    children = ", ".join(name for name, _ in model.named_children())
    raise ValueError(
        f"no decoder layers found in {type(model).__name__}: required a module with a list named 'layers' behind "
        f"get_language_model() or .model; found the children {children or 'none'}"
    )


def _has_layers(module: Any) -> bool:
    layers = getattr(module, "layers", None)
    return layers is not None and hasattr(layers, "__len__") and len(layers) > 0
