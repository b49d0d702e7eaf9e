"""A draft checkpoint and its verifier's config as files, written without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SIZES = {"BF16": 2, "I64": 8, "BOOL": 1}
CODES = {"I64": "q", "BOOL": "?"}
HIDDEN, LAYERS, VOCAB, DRAFT_VOCAB = 8, 6, 12, 4
#: Draft token to verifier token.
CHOSEN = (1, 3, 4, 9)


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], Sequence[int] | None]]) -> None:
    """Write dtype, shape and values (None: zeros) of each tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, shape, values) in tensors.items():
        count = 1
        for size in shape:
            count *= size
        data = bytes(count * SIZES[dtype]) if values is None else struct.pack(f"<{count}{CODES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def draft_tensors() -> dict[str, tuple[str, tuple[int, ...], Sequence[int] | None]]:
    """What a checkpoint of one layer holds; the layer's own tensors are left out."""
    return {
        "d2t": ("I64", (DRAFT_VOCAB,), [target - index for index, target in enumerate(CHOSEN)]),
        "t2d": ("BOOL", (VOCAB,), [index in CHOSEN for index in range(VOCAB)]),
        "embed_tokens.weight": ("BF16", (VOCAB, HIDDEN), None),
        "fc.weight": ("BF16", (HIDDEN, 3 * HIDDEN), None),
        "norm.weight": ("BF16", (HIDDEN,), None),
        "lm_head.weight": ("BF16", (DRAFT_VOCAB, HIDDEN), None),
    }


def draft_json(verifier: Path) -> dict[str, Any]:
    """The config that goes with them."""
    return {
        "speculators_model_type": "eagle3",
        "eagle_aux_hidden_state_layer_ids": [2, 3, 5],
        "draft_vocab_size": DRAFT_VOCAB,
        "transformer_layer_config": {"model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCAB},
        "speculators_config": {
            "proposal_methods": [{"speculative_tokens": 3}],
            "verifier": {"name_or_path": str(verifier)},
        },
    }


def write_verifier(folder: Path, **changes: Any) -> Path:
    """A folder with the verifier's config alone."""
    folder.mkdir()
    config = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCAB, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def write_draft(folder: Path, verifier: Path, tensors: Mapping[str, Any] | None = None, **changes: Any) -> Path:
    """A checkpoint; ``changes`` replace entries of its config, ``tensors`` tensors (None: left out)."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**draft_json(verifier), **changes}))
    merged = {**draft_tensors(), **(tensors or {})}
    write_safetensors(folder / "model.safetensors", {name: value for name, value in merged.items() if value})
    return folder
