"""Shapes and vocabulary maps out of safetensors files, without numpy or torch.

The format: eight bytes with the length of a JSON header, the header (name to dtype, shape and offsets), the data
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Tensor", "read_header", "read_integers"]

#: A header is some kilobytes; more than this is no safetensors file.
LONGEST_HEADER = 100 * 2**20


@dataclass(frozen=True)
class Tensor:
    """Where a tensor is.

    Attributes:
        file: Its file.
        dtype: As the format names it: ``I64``, ``BOOL``, ``BF16``, ...
        shape: Its shape.
        start: First byte in the file.
        size: Bytes.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def read_header(file: Path) -> dict[str, Tensor]:
    """Read what a file holds.

    Args:
        file: A safetensors file.

    Returns:
        Tensor name to place.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no safetensors file, or is cut off.
    """
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= LONGEST_HEADER:
            raise ValueError("no safetensors header")
        header = json.loads(stream.read(length))
        end = stream.seek(0, 2)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        if 8 + length + last > end:
            raise ValueError(f"{name} is cut off")
        tensors[name] = Tensor(file, entry["dtype"], tuple(entry["shape"]), 8 + length + first, last - first)
    return tensors


def read_integers(tensor: Tensor) -> list[int]:
    """Values of a one-dimensional integer or bool tensor.

    Args:
        tensor: Its place; dtype ``I64``, ``I32`` or ``BOOL``.

    Raises:
        ValueError: Another dtype.
    """
    codes = {"I64": "q", "I32": "i", "BOOL": "b"}
    if tensor.dtype not in codes:
        raise ValueError(f"dtype {tensor.dtype}, expected one of {', '.join(codes)}")
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start)
        data = stream.read(tensor.size)
    return [value for (value,) in struct.iter_unpack(f"<{codes[tensor.dtype]}", data)]
