"""Reference hidden states from Hugging Face transformers, one prompt at a time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculators_compat.testing.checkpoint import read_tensors, require, write_json, write_tensors
from speculators_compat.testing.kimi_k25 import TEXT_PREFIX

if TYPE_CHECKING:
    import torch


def reference_hidden_states(
    model_dir: str | Path, prompts: Sequence[Sequence[int]], layer_ids: Sequence[int]
) -> list[list[torch.Tensor]]:
    """Compute the states after the given decoder layers, before the final norm, in float32.

    Eager attention, no padding, no cache. Kimi-K2.5's language part runs as transformers' own
    ``DeepseekV3ForCausalLM``: no code of the folder is executed.

    Args:
        model_dir: Checkpoint folder.
        prompts: Token ids of each prompt.
        layer_ids: Decoder layers in the convention of speculators 0.3 and 0.4: ``k`` is the state
            *after* layer ``k``, counted from 0 (vLLM calls it ``k + 1``).

    Returns:
        For each prompt, one float32 CPU tensor ``[tokens, hidden_size]`` for each layer, in the
        order of ``layer_ids``.

    Raises:
        ValueError: If a layer id is outside the model.
    """
    import torch

    model = load_reference_model(model_dir)
    layers = model.model.layers
    valid = all(0 <= layer < len(layers) for layer in layer_ids)
    require(valid, f"layer ids from 0 to {len(layers) - 1}", list(layer_ids), "drop the others")
    seen: dict[int, torch.Tensor] = {}

    def keep(layer_id: int) -> Any:
        def hook(module: object, args: object, output: Any) -> None:
            states = output[0] if isinstance(output, tuple) else output
            seen[layer_id] = states[0].detach().clone()

        return hook

    handles = [layers[layer].register_forward_hook(keep(layer)) for layer in set(layer_ids)]
    results = []
    try:
        for prompt in prompts:
            with torch.inference_mode():
                model.model(input_ids=torch.tensor([list(prompt)]), use_cache=False)
            results.append([seen[layer] for layer in layer_ids])
    finally:
        for handle in handles:
            handle.remove()
    return results


def load_reference_model(model_dir: str | Path) -> Any:
    """Load a checkpoint folder as a transformers causal language model.

    Args:
        model_dir: Checkpoint folder.

    Returns:
        The model in float32, eager attention, evaluation mode, on the CPU.
    """
    import torch
    from transformers import AutoModelForCausalLM

    path = Path(model_dir)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        if config["model_type"] == "kimi_k25":
            path = _language_part(path, config, Path(scratch))
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32, attn_implementation="eager")
    if config["model_type"] == "kimi_k25":
        _align_latent_norms(model)
    return model.eval()


def _language_part(source: Path, config: dict[str, Any], target: Path) -> Path:
    """Write the text model of a Kimi-K2.5 folder as a DeepSeek-V3 checkpoint of its own."""
    # transformers knows the architecture by its own name only.
    write_json(target / "config.json", {**config["text_config"], "model_type": "deepseek_v3"})
    tensors = {
        name.removeprefix(TEXT_PREFIX): tensor
        for name, tensor in read_tensors(source).items()
        if name.startswith(TEXT_PREFIX)
    }
    write_tensors(target, tensors, shards=1)
    return target


def _align_latent_norms(model: Any) -> None:
    """Give the norms inside latent attention the epsilon that vLLM gives them.

    transformers leaves them at its default of 1e-6, vLLM uses ``rms_norm_eps`` of the configuration
    (``DeepseekV2Attention`` and ``DeepseekV2MLAAttention`` in its deepseek_v2.py). With 1e-5 the
    difference is about 5e-6 of a state, as large as all of float32's rounding.
    """
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm):
            norm.variance_epsilon = model.config.rms_norm_eps


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative L2 error of ``actual`` against ``expected``, computed in float64.

    Args:
        actual: Tensor of any floating dtype.
        expected: Reference of the same shape.

    Returns:
        ``norm(actual - expected) / norm(expected)``; not finite if an entry is not.

    Raises:
        ValueError: If the shapes differ: broadcasting would hide a lost row.
    """
    shapes = (tuple(actual.shape), tuple(expected.shape))
    require(shapes[0] == shapes[1], f"shape {shapes[1]}", shapes[0], "compare the same tokens")
    wanted = expected.detach().cpu().double()
    difference = actual.detach().cpu().double() - wanted
    return float(difference.norm() / wanted.norm())
