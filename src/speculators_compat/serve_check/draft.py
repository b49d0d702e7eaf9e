"""The draft checkpoint: what it says, whether vLLM can serve it, and the heads that it is compared with."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..store import write_json
from .tensors import Tensor, read_header, read_integers
from .verifier import VerifierFacts, read_json

__all__ = ["Draft", "check_draft", "read_draft", "shifted_ids", "write_shifted", "write_untrained"]

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
#: Tensors that a comparison head keeps: they are the verifier's or the vocabulary's, not learnt by the draft.
KEPT = ("embed_tokens.weight", "d2t", "t2d")
#: Inputs of the draft: ``Eagle3DraftModel`` and vLLM's llama_eagle3.py concatenate three states.
INPUTS = 3


@dataclass(frozen=True)
class Draft:
    """A trained checkpoint as speculators saves it.

    Attributes:
        folder: Where it is.
        config: Its ``config.json``.
        tensors: Tensor name to its place in the files.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def layer(self) -> dict[str, Any]:
        """Config of the draft's decoder layer."""
        fields = self.config.get("transformer_layer_config")
        return fields if isinstance(fields, dict) else {}

    @property
    def layer_ids(self) -> list[int]:
        """States that the draft reads, in vLLM's convention: k is the input of layer k, the state after k - 1."""
        return list(self.config.get(LAYER_IDS) or ())

    @property
    def verifier(self) -> str | None:
        """The verifier that the draft was trained for."""
        name = (self._speculators.get("verifier") or {}).get("name_or_path")
        return str(name) if name else None

    @property
    def speculative_tokens(self) -> int | None:
        """Draft tokens a step that the checkpoint proposes."""
        methods = self._speculators.get("proposal_methods") or [{}]
        tokens = methods[0].get("speculative_tokens")
        return int(tokens) if tokens else None

    @property
    def _speculators(self) -> dict[str, Any]:
        return self.config.get("speculators_config") or {}


def read_draft(folder: Path) -> Draft:
    """Read a checkpoint's config and the shapes of its tensors; no tensor is loaded.

    Args:
        folder: A checkpoint of an EAGLE-3 draft in speculators' format.

    Raises:
        UsageError: The folder is no such checkpoint, or cannot be read.
    """
    config = read_json(str(folder), "config.json") if folder.is_dir() else {}
    if config.get("speculators_model_type") != "eagle3" or not isinstance(config.get("transformer_layer_config"), dict):
        raise UsageError(
            "CHECKPOINT must be the folder of an EAGLE-3 draft that speculators saved.",
            f"{folder}: {'no such folder' if not folder.is_dir() else _described(config)}",
            "Name one epoch's folder, such as RUN/checkpoints/9.",
        )
    return Draft(folder, config, _tensors(folder))


def _described(config: dict[str, Any]) -> str:
    return (
        f"config.json with speculators_model_type {config.get('speculators_model_type')!r}" if config else "no config"
    )


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    path = folder
    try:
        for path in _weight_files(folder):
            tensors.update(read_header(path))
    except (OSError, ValueError) as error:
        raise UsageError(
            "The draft's weights must be readable safetensors.", f"{path}: {error}", "Use a complete checkpoint."
        ) from error
    return tensors


def check_draft(draft: Draft, verifier: VerifierFacts) -> None:
    """Everything that would make vLLM fail, or serve the draft wrongly without failing.

    Args:
        draft: The draft.
        verifier: Facts of the verifier that will serve with it.

    Raises:
        UsageError: Layer ids, widths or vocabularies do not go together; the message names the first.
    """
    _check_layer_ids(draft, verifier)
    _check_widths(draft, verifier)
    _check_vocabulary(draft, verifier)


def _check_layer_ids(draft: Draft, verifier: VerifierFacts) -> None:
    ids, layers = draft.layer_ids, verifier.num_hidden_layers
    # vLLM collects the states in layer order, whatever order the list has.
    ascending = all(low < high for low, high in itertools.pairwise(ids))
    if len(ids) == INPUTS and ascending and ids[0] >= 1 and ids[-1] <= layers:
        return
    raise UsageError(
        f"{LAYER_IDS} must be {INPUTS} ascending ids from 1 to {layers}, the verifier's number of layers (vLLM's "
        "convention: k is the state before layer k).",
        f"{ids or 'none'} in {draft.folder / 'config.json'}",
        "Without them vLLM serves layers of its own choice. State the layers that the draft was trained on, each plus "
        "one: speculators counts the state after layer k as k.",
    )


def _check_widths(draft: Draft, verifier: VerifierFacts) -> None:
    hidden = draft.layer.get("hidden_size")
    if hidden != verifier.hidden_size:
        raise UsageError(
            f"The draft's hidden size must be the verifier's, {verifier.hidden_size}.",
            f"hidden_size {hidden} in transformer_layer_config",
            f"Serve it with the verifier that it was trained for ({draft.verifier}).",
        )
    _check_shape(draft, "fc.weight", (hidden, INPUTS * verifier.hidden_size), "its config and the verifier")
    _check_shape(draft, "norm.weight", (hidden,), "its config")


def _check_vocabulary(draft: Draft, verifier: VerifierFacts) -> None:
    size, target = draft.config.get("draft_vocab_size"), verifier.vocab_size
    if not isinstance(size, int) or not 0 < size <= target:
        raise UsageError(
            f"draft_vocab_size must be 1 to {target}, the verifier's vocabulary.",
            repr(size),
            "Use a complete checkpoint, and the verifier that it was trained for.",
        )
    _check_shape(draft, "lm_head.weight", (size, verifier.hidden_size), "draft_vocab_size and hidden_size")
    if "embed_tokens.weight" in draft.tensors:
        _check_shape(draft, "embed_tokens.weight", (target, verifier.hidden_size), "the verifier's vocabulary")
    mapped = [name for name in ("d2t", "t2d") if name in draft.tensors]
    if size == target and not mapped:
        return
    _check_shape(draft, "d2t", (size,), "draft_vocab_size")
    chosen = [index + offset for index, offset in enumerate(read_integers(draft.tensors["d2t"]))]
    valid = len(set(chosen)) == size and min(chosen) >= 0 and max(chosen) < target
    if valid and "t2d" in draft.tensors:
        _check_shape(draft, "t2d", (target,), "the verifier's vocabulary")
        valid = chosen == [index for index, used in enumerate(read_integers(draft.tensors["t2d"])) if used]
    if not valid:
        raise UsageError(
            f"d2t must map the {size} draft tokens to {size} of the verifier's {target}, the ones that t2d marks.",
            f"{len(set(chosen))} distinct tokens from {min(chosen)} to {max(chosen)}, or others than t2d's",
            "Train with vocabulary maps of this verifier (speculators-compat vocab).",
        )


def _check_shape(draft: Draft, name: str, expected: tuple[int, ...], source: str) -> None:
    tensor = draft.tensors.get(name)
    if tensor is None or tensor.shape != expected:
        raise UsageError(
            f"{name} of the draft must have the shape {list(expected)} that {source} ask for.",
            "no such tensor" if tensor is None else f"shape {list(tensor.shape)}",
            "Use a complete checkpoint, and the verifier that it was trained for.",
        )


def shifted_ids(layer_ids: list[int], num_layers: int) -> list[int]:
    """Layer ids one off, as a mistake between the two conventions makes them.

    Args:
        layer_ids: In vLLM's convention, ascending, 1 to ``num_layers``.
        num_layers: Decoder layers of the verifier.

    Returns:
        Each id minus one; plus one where that would leave no layer before the first id.

    Raises:
        UsageError: The ids span all layers, so that no shift fits.
    """
    if layer_ids[0] > 1:
        return [layer_id - 1 for layer_id in layer_ids]
    if layer_ids[-1] < num_layers:
        return [layer_id + 1 for layer_id in layer_ids]
    raise UsageError(
        "The shifted control needs a layer before the first or after the last of the draft's.",
        f"{layer_ids} of {num_layers} layers",
        "Leave the control out.",
    )


def write_shifted(draft: Draft, folder: Path, num_layers: int) -> list[int]:
    """Write the control: the same weights, served with layer ids one off.

    Returns:
        Its layer ids.
    """
    ids = shifted_ids(draft.layer_ids, num_layers)
    _write_config(draft, folder, {LAYER_IDS: ids})
    for path in _weight_files(draft.folder):
        (folder / path.name).symlink_to(path.resolve())
    return ids


def write_untrained(draft: Draft, folder: Path, seed: int) -> None:
    """Write an untrained head: the same config, every trainable tensor drawn anew.

    Matrices are normal with the config's ``initializer_range`` (0.02 where it has none), vectors, which are norm
    weights here, are ones. Embeddings and vocabulary maps stay.

    Args:
        draft: The trained draft.
        folder: New folder.
        seed: Seed of the draw.
    """
    import torch
    from safetensors.torch import save_file

    _write_config(draft, folder, {})
    std = float(draft.layer.get("initializer_range") or 0.02)

    def drawn(name: str, tensor: Any) -> Any:
        if name in KEPT or not tensor.is_floating_point():
            return tensor
        if tensor.dim() < 2:
            return torch.ones_like(tensor)
        stream = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
        return (torch.randn(tensor.shape, generator=stream) * std).to(tensor.dtype)

    for path in _weight_files(draft.folder):
        with _opened(path) as tensors:
            save_file({name: drawn(name, tensor) for name, tensor in tensors}, folder / path.name, {"format": "pt"})


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[str, Any]]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        yield ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 (safe_open is no mapping)


def _write_config(draft: Draft, folder: Path, changes: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {**draft.config, **changes})
    index = draft.folder / "model.safetensors.index.json"
    if index.exists():
        (folder / index.name).write_text(json.dumps(json.loads(index.read_text(encoding="utf-8"))), encoding="utf-8")
