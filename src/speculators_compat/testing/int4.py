"""The routed experts of a tiny Kimi-K2.5 in INT4, as the published checkpoint stores them.

compressed-tensors' ``pack-quantized`` format, W4A16: symmetric four-bit integers, one scale for 32 columns, eight
values in an int32. Attention, norms, embeddings, lm_head, router, shared experts, the dense layer and the vision tower
stay as they are. The packing is the ``compressed-tensors`` package's own, which vLLM depends on.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculators_compat.testing.checkpoint import prepare_directory, read_tensors, require, write_json, write_tensors

if TYPE_CHECKING:
    import torch

__all__ = ["GROUP_SIZE", "make_int4"]

GROUP_SIZE = 32
EXPERT = re.compile(r"\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight$")
#: What stays unquantised. vLLM matches "re:" entries against module names, and targets every other Linear.
IGNORED = (
    "re:.*lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    "re:.*vision_tower.*",
    "re:.*mm_projector.*",
)


def make_int4(source: str | Path, directory: str | Path, dequantised: str | Path | None = None) -> Path:
    """Write a tiny Kimi-K2.5 with its routed experts in INT4, and its twin with the same values unpacked.

    Args:
        source: Checkpoint of ``make_kimi_k25``.
        directory: New or empty folder for the INT4 checkpoint: ``weight_packed`` int32 [rows, columns / 8],
            ``weight_scale`` bfloat16 [rows, columns / 32] and ``weight_shape`` int32 [2] for each projection of each
            routed expert, and ``quantization_config`` in ``text_config``.
        dequantised: New or empty folder for the twin: integer times scale, in the source's dtype. In float32 the
            product is exact.

    Returns:
        The INT4 folder.

    Raises:
        ValueError: The source has no routed experts, or their widths are no multiple of 32.
    """
    tensors = read_tensors(Path(source))
    experts = [name for name in tensors if EXPERT.search(name)]
    require(bool(experts), "a checkpoint with routed experts", str(source), "use make_model('kimi_k25', ...)")
    widths = sorted({tensors[name].shape[1] for name in experts})
    fits = all(width % GROUP_SIZE == 0 for width in widths)
    require(fits, f"expert widths that are multiples of {GROUP_SIZE}", widths, "change moe_intermediate_size")
    packed: dict[str, torch.Tensor] = {}
    twin: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name not in experts:
            packed[name] = twin[name] = tensor
            continue
        values, scale = _quantise(tensor)
        packed |= _stored(name, values, scale)
        twin[name] = (values.float() * scale.float().repeat_interleave(GROUP_SIZE, dim=1)).to(tensor.dtype)
    path = _write(Path(source), directory, packed, {"quantization_config": _quantization_config()})
    if dequantised is not None:
        _write(Path(source), dequantised, twin, {})
    return path


def _quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers int8 ``[rows, columns]`` from -8 to 7, and scales bfloat16 ``[rows, columns / 32]``."""
    import torch
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    arguments = _arguments()
    groups = weight.float().unflatten(1, (-1, GROUP_SIZE))
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments)
    # Rounded before the integers are chosen, so that integer times stored scale is what was chosen.
    scale = scale.to(torch.bfloat16)
    values = quantize(x=weight.float(), scale=scale.float(), zero_point=zero.float(), args=arguments, dtype=torch.int8)
    return values, scale


def _stored(name: str, values: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
    import torch
    from compressed_tensors.compressors import pack_to_int32

    prefix = name.removesuffix("weight")
    return {
        f"{prefix}weight_packed": pack_to_int32(values, 4).contiguous(),
        f"{prefix}weight_scale": scale.contiguous(),
        f"{prefix}weight_shape": torch.tensor(values.shape, dtype=torch.int32),
    }


def _weights() -> dict[str, Any]:
    return {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": GROUP_SIZE,
        "dynamic": False,
    }


def _arguments() -> Any:
    from compressed_tensors.quantization import QuantizationArgs

    return QuantizationArgs(**_weights())


def _quantization_config() -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": _weights(), "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(IGNORED),
        "kv_cache_scheme": None,
    }


def _write(source: Path, directory: str | Path, tensors: dict[str, torch.Tensor], text_changes: dict[str, Any]) -> Path:
    """Copy the checkpoint's other files and write tensors and config."""
    path = prepare_directory(directory)
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors" and not file.name.endswith(".index.json"):
            shutil.copyfile(file, path / file.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["text_config"].update(text_changes)
    write_json(path / "config.json", config)
    write_tensors(path, tensors, shards=len(list(source.glob("*.safetensors"))))
    return path
