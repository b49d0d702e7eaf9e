"""The verifier's weights on one rank: from the safetensors headers, an index, or the config alone.

Only headers are read, never a tensor.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sizes import Item, readable

__all__ = ["Tensor", "implied_bytes", "rank_bytes", "read_headers", "weights_item"]

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # bytes; the format's own limit (safetensors, tensor.rs)

# Linear layers that vLLM keeps whole on every rank: the router, the narrow side of MLA's projections
# (models/deepseek_v2.py), and the vision side, of which some models are split and some are not.
WHOLE = re.compile(
    r"\.(?:gate|router|q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj)\.weight"
    r"|(?:^|\.)(?:vision_\w+|visual|mm_projector|multi_modal_projector)\."
)
KEY_VALUE = re.compile(r"\.[kv]_proj\.")
ASSUMED = "linear layers, experts, embeddings and head split by tensor parallel size; the rest whole on every rank"


@dataclass(frozen=True)
class Tensor:
    """One entry of a safetensors header.

    Attributes:
        name: Tensor name.
        shape: Its dimensions.
        bytes: Its size in the file.
    """

    name: str
    shape: tuple[int, ...]
    bytes: int


def weights_item(model: str, raw: Mapping[str, Any], text: Any, tensor_parallel_size: int) -> Item:
    """The verifier's weights on one rank.

    Args:
        model: Checkpoint folder, or a Hugging Face id that may be in the local cache. Nothing is downloaded.
        raw: The whole config.json.
        text: Config of the language model.
        tensor_parallel_size: Ranks.

    Returns:
        The item; its ``bytes`` are None where no file says them, and ``how`` then gives what the config implies.
    """
    name = "verifier weights"
    folder = _folder(model)
    if folder is not None:
        files = _files(folder)
        problem = ""
        try:
            if files and all(file.exists() for file in files):
                tensors = [tensor for file in files for tensor in read_headers(file)]
                size = rank_bytes(tensors, tensor_parallel_size, int(getattr(text, "num_key_value_heads", None) or 0))
                stored = readable(sum(tensor.bytes for tensor in tensors))
                return Item(
                    name, size, f"{stored} in {len(files)} files, tensor parallel {tensor_parallel_size}; {ASSUMED}"
                )
        except (OSError, ValueError) as error:
            problem = f"; {error}"
        size_in_index = _index(folder).get("metadata", {}).get("total_size")
        if isinstance(size_in_index, (int, float)):
            how = f"{readable(int(size_in_index))} by {INDEX}, evenly over {tensor_parallel_size} ranks{problem}"
            return Item(name, -(-int(size_in_index) // tensor_parallel_size), how)
        return Item(
            name, None, f"no readable weights in {folder}{problem}; {_implied(raw, text, tensor_parallel_size)}"
        )
    return Item(name, None, f"{model} is not on this machine; {_implied(raw, text, tensor_parallel_size)}")


def rank_bytes(tensors: list[Tensor], tensor_parallel_size: int, kv_heads: int = 0) -> int:
    """Bytes on one rank.

    Args:
        tensors: The checkpoint's.
        tensor_parallel_size: Ranks.
        kv_heads: Key/value heads: with fewer heads than ranks, vLLM keeps a head on several ranks. 0: do not care.
    """
    return sum(-(-tensor.bytes // _ranks(tensor, tensor_parallel_size, kv_heads)) for tensor in tensors)


def _ranks(tensor: Tensor, tensor_parallel_size: int, kv_heads: int) -> int:
    if len(tensor.shape) < 2 or WHOLE.search(tensor.name):
        return 1
    if kv_heads and KEY_VALUE.search(tensor.name):
        return min(tensor_parallel_size, kv_heads)
    return tensor_parallel_size


def read_headers(file: Path) -> Iterator[Tensor]:
    """Entries of a safetensors file.

    Args:
        file: The file.

    Raises:
        ValueError: The header is damaged.
        OSError: The file cannot be read.
    """
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(MAX_HEADER, file.stat().st_size - 8):
            raise ValueError(f"{file} is no complete safetensors file")
        header = stream.read(length)
    try:
        for name, entry in json.loads(header).items():
            if name != "__metadata__":
                first, end = entry["data_offsets"]
                yield Tensor(name, tuple(entry["shape"]), int(end) - int(first))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the header of {file} is damaged ({type(error).__name__})") from error


def _folder(model: str) -> Path | None:
    """The checkpoint's folder: itself, or the snapshot in the local cache of the Hub."""
    if Path(model).is_dir():
        return Path(model)
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):  # not installed; or no id at all
        return None
    return Path(found).parent if isinstance(found, str) else None


def _files(folder: Path) -> list[Path]:
    names = _index(folder).get("weight_map")
    if isinstance(names, dict):
        # An index is foreign text: only names in the folder itself count.
        return [folder / Path(str(name)).name for name in sorted({str(name) for name in names.values()})]
    return sorted(folder.glob("*.safetensors"))


def _index(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) and isinstance(content.get("metadata", {}), dict) else {}


def _implied(raw: Mapping[str, Any], text: Any, tensor_parallel_size: int) -> str:
    size = implied_bytes(raw, text)
    if size is None:
        return "its config does not give the sizes either"
    share = readable(size // tensor_parallel_size)
    return f"the config implies about {readable(size)}, {share} on each of {tensor_parallel_size} ranks"


def implied_bytes(raw: Mapping[str, Any], text: Any) -> int | None:
    """Weights of the language model by its config: Llama's layout or DeepSeek's, dense or with experts.

    Args:
        raw: The whole config.json, for ``quantization_config``.
        text: Config of the language model.

    Returns:
        Bytes without norms, biases and a vision tower, or None if a size is missing. Quantised are the routed experts
        where there are any and the scheme has an ``ignore`` list, else every linear layer; the rest has two bytes.
    """
    try:
        experts, linear, tables = _parameters(text)
    except (AttributeError, TypeError, ValueError):
        return None
    quantised, only_some = _quantised_bytes(raw, text)
    return round(experts * quantised + linear * (2.0 if only_some and experts else quantised) + tables * 2.0)


def _parameters(text: Any) -> tuple[int, int, int]:
    """Parameters of routed experts, of other linear layers, and of embeddings and head."""
    hidden, layers = int(text.hidden_size), int(text.num_hidden_layers)
    count = next(
        (getattr(text, n) for n in ("n_routed_experts", "num_experts", "num_local_experts") if _has(text, n)), 0
    )
    dense = int(getattr(text, "first_k_dense_replace", 0) or 0) if count else layers
    width = int(getattr(text, "moe_intermediate_size", None) or text.intermediate_size)
    routed = layers - dense
    experts = routed * int(count) * 3 * hidden * width
    shared = int(getattr(text, "n_shared_experts", 0) or 0) * 3 * hidden * width + int(count) * hidden
    linear = layers * _attention(text) + dense * 3 * hidden * int(text.intermediate_size) + routed * shared
    tables = 1 if getattr(text, "tie_word_embeddings", False) else 2
    return experts, linear, tables * int(text.vocab_size) * hidden


def _attention(text: Any) -> int:
    hidden, heads = int(text.hidden_size), int(text.num_attention_heads)
    if not _has(text, "kv_lora_rank"):
        size = int(getattr(text, "head_dim", None) or hidden // heads)
        return 2 * hidden * size * (heads + int(getattr(text, "num_key_value_heads", None) or heads))
    rope, nope, value = int(text.qk_rope_head_dim), int(text.qk_nope_head_dim), int(text.v_head_dim)
    rank, latent = int(getattr(text, "q_lora_rank", 0) or 0), int(text.kv_lora_rank)
    queries = heads * (nope + rope)
    into_queries = hidden * rank + rank * queries if rank else hidden * queries
    return into_queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def _has(text: Any, name: str) -> bool:
    return bool(getattr(text, name, None))


def _quantised_bytes(raw: Mapping[str, Any], text: Any) -> tuple[float, bool]:
    """Bytes of one quantised weight with its share of a scale, and whether some layers are left out."""
    scheme = raw.get("quantization_config") or getattr(text, "quantization_config", None)
    if not isinstance(scheme, dict):
        return 2.0, False
    groups = scheme.get("config_groups")
    group: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = (group.get("weights") if isinstance(group, dict) else None) or {}
    bits = weights.get("num_bits") or scheme.get("bits") or scheme.get("w_bit") or 8
    group_size = weights.get("group_size") or scheme.get("group_size") or scheme.get("q_group_size") or 0
    scale = 2 / group_size if isinstance(group_size, int) and group_size > 0 else 0.0
    return float(bits) / 8 + scale, bool(scheme.get("ignore"))
