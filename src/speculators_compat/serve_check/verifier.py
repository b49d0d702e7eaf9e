"""Facts of the verifier, read from its config.json as data: no remote code runs, transformers is not needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drift import UsageError

__all__ = ["VerifierFacts", "check_remote_code", "read_json", "read_verifier"]

#: Where a multimodal wrapper's config keeps its language model's.
NESTED = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True)
class VerifierFacts:
    """What a draft must match.

    Attributes:
        name: Folder or Hugging Face id.
        num_hidden_layers: Decoder layers.
        hidden_size: Width of a hidden state.
        vocab_size: Size of the vocabulary.
        max_positions: Longest context in tokens, if stated.
        multimodal: Whether the config wraps a language model's.
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int | None
    multimodal: bool


def read_json(model: str, name: str) -> dict[str, Any]:
    """One JSON file of a checkpoint; empty if there is none.

    Args:
        model: Folder or Hugging Face id.
        name: File name.

    Raises:
        UsageError: The file cannot be read, or the id cannot be resolved.
    """
    path: Path | None = Path(model) / name
    try:
        if not Path(model).is_dir():
            from transformers.utils import cached_file

            found = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
            path = Path(found) if found else None
        if path is None or not path.exists():
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "A checkpoint is a folder or a Hugging Face id whose JSON files can be read.",
            f"{model}: {error}".splitlines()[0],
            "Correct the name, or download the checkpoint first.",
        ) from error
    return content if isinstance(content, dict) else {}


def read_verifier(name: str | None) -> VerifierFacts:
    """Read what a draft must match.

    Args:
        name: Folder or Hugging Face id; None if neither the checkpoint nor the caller names one.

    Raises:
        UsageError: There is no verifier, or its config does not state layers, width and vocabulary.
    """
    way_out = "Name the verifier with --verifier."
    if not name:
        raise UsageError("A draft is served with its verifier.", "none in speculators_config.verifier", way_out)
    raw = read_json(name, "config.json")
    nested = next((raw[key] for key in NESTED if isinstance(raw.get(key), dict)), None)
    text = raw if nested is None else nested
    wanted = ("num_hidden_layers", "hidden_size", "vocab_size")
    missing = [key for key in wanted if not isinstance(text.get(key), int)]
    if missing:
        raise UsageError(
            f"The verifier's config.json must state {', '.join(wanted)}.",
            f"{name} without {', '.join(missing)}" if raw else f"no config.json in {name}",
            way_out,
        )
    positions = text.get("max_position_embeddings")
    return VerifierFacts(
        name=name,
        num_hidden_layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        vocab_size=text["vocab_size"],
        max_positions=positions if isinstance(positions, int) else None,
        multimodal=nested is not None,
    )


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a verifier with code of its own unless the caller trusts it.

    Raises:
        UsageError: ``auto_map`` in its config or tokenizer names code, and ``trusted`` is false.
    """
    for name in ("config.json", "tokenizer_config.json"):
        if not trusted and read_json(model, name).get("auto_map"):
            raise UsageError(
                f"{model} brings Python code of its own, and its loaders would run it.",
                f"auto_map in {name}",
                "Read that code, then pass --trust-remote-code.",
            )
