"""Writing a Hugging Face checkpoint folder: JSON files and safetensors shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16")


def require(condition: bool, required: str, found: object, way_out: str) -> None:
    """Raise one ``ValueError`` that says what was required, what was found and the way out.

    Args:
        condition: What must hold.
        required: What the caller had to give.
        found: What the caller gave.
        way_out: What to do about it.

    Raises:
        ValueError: If ``condition`` is false.
    """
    if not condition:
        raise ValueError(f"required: {required}; found: {found!r}; {way_out}")


def prepare_directory(directory: str | Path) -> Path:
    """Create an empty model folder.

    Args:
        directory: Where the checkpoint goes. May exist if it is empty.

    Returns:
        The folder.

    Raises:
        ValueError: If the path is a file or a folder with content: a mixture of two checkpoints
            would load without complaint.
    """
    path = Path(directory)
    usable = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    require(usable, "a new or empty folder", str(path), "name another folder or empty this one")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as indented UTF-8 JSON."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(directory: Path, tensors: Mapping[str, torch.Tensor], shards: int) -> None:
    """Write tensors as safetensors, with an index when there is more than one shard.

    Args:
        directory: The model folder.
        tensors: Checkpoint name to CPU tensor.
        shards: How many files; 1 writes ``model.safetensors`` without an index.

    Raises:
        ValueError: If ``shards`` is not between 1 and the number of tensors.
    """
    from safetensors.torch import save_file

    names = list(tensors)
    require(1 <= shards <= len(names), f"1 to {len(names)} shards", shards, "change `shards`")
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(dict(tensors), directory / "model.safetensors", metadata=metadata)
        return
    weight_map: dict[str, str] = {}
    for index in range(shards):
        # Contiguous slices, as real checkpoints have them: a layer's tensors stay together.
        part = names[index * len(names) // shards : (index + 1) * len(names) // shards]
        file_name = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name] for name in part}, directory / file_name, metadata=metadata)
        weight_map.update(dict.fromkeys(part, file_name))
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_json(
        directory / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Read every tensor of a checkpoint folder, whatever its sharding.

    Args:
        directory: The model folder.

    Returns:
        Checkpoint name to CPU tensor.

    Raises:
        ValueError: If the folder holds no safetensors file.
    """
    from safetensors.torch import load_file

    files = sorted(directory.glob("*.safetensors"))
    require(bool(files), "a folder with *.safetensors", str(directory), "write the model first")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors.update(load_file(file))
    return tensors
