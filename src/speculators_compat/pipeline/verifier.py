"""What a run must know of its verifier before anything starts: shape, and code of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..layers import check_layer_ids, default_layer_ids
from .config import RunConfig

__all__ = [
    "Verifier",
    "check_fit",
    "check_inputs",
    "check_remote_code",
    "check_run",
    "read_config",
    "turn_end_ids",
]

# speculators loads the tokenizer and the config with trust_remote_code=True hard-wired
# (data_generation/ preprocessing.py, config_generator.py), so code that either file names would run
# whatever the option says.
CODE_FILES = {
    "config.json": ("AutoConfig", "AutoTokenizer"),
    "tokenizer_config.json": ("AutoTokenizer",),
}

# Ends a turn in ChatML and Kimi's format; Kimi's tokenizer names another token as its eos_token.
IM_END = "<|im_end|>"


@dataclass(frozen=True)
class Verifier:
    """The verifier's configuration.

    Attributes:
        config: As transformers reads it; the wrapper's, for a multimodal model.
        text: Config of the language model, the same object for a text model.
        layer_ids: Layers to capture, in speculators' convention.
    """

    config: Any
    text: Any
    layer_ids: list[int]

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        return int(self.text.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Size of the target vocabulary."""
        return int(self.text.vocab_size)

    @property
    def max_positions(self) -> int | None:
        """Longest context in tokens, if the config says so."""
        value = getattr(self.text, "max_position_embeddings", None)
        return int(value) if value else None


def check_inputs(config: RunConfig) -> None:
    """What can be refused without importing transformers, for a checkpoint in a folder.

    Args:
        config: The run.

    Raises:
        UsageError: The checkpoint needs code that the run does not trust, or the data are neither a
            file nor a name.
    """
    check_remote_code(config.verifier, config.trust_remote_code)
    _check_data(config.prepare.data)


def check_run(config: RunConfig) -> Verifier:
    """Everything about a run that can be refused before it starts.

    Args:
        config: The run.

    Returns:
        The verifier's configuration.

    Raises:
        UsageError: The checkpoint needs code that the run does not trust, cannot be read, or does
            not go with the layers or the vocabulary asked for; the data are neither a file nor a
            known name; or the installed trainer has no such algorithm or option.
    """
    check_inputs(config)
    from .train_options import check_options

    verifier = _load(config)
    check_fit(config, verifier)
    check_options(config, verifier.vocab_size)
    return verifier


def check_fit(config: RunConfig, verifier: Verifier) -> None:
    """Refuse layers or a draft vocabulary that the verifier does not have, and a draft that cannot be built.

    Args:
        config: The run.
        verifier: Its verifier.

    Raises:
        UsageError: One of them does not fit.
    """
    check_layer_ids(verifier.layer_ids, int(verifier.text.num_hidden_layers), algorithm=config.train.algorithm)
    if config.vocab.draft_vocab_size > verifier.vocab_size:
        raise UsageError(
            "The draft's vocabulary is a part of the verifier's.",
            f"draft_vocab_size {config.vocab.draft_vocab_size} of {verifier.vocab_size} tokens",
            "Lower vocab.draft_vocab_size.",
        )
    _check_draft(config, verifier)


def _check_draft(config: RunConfig, verifier: Verifier) -> None:
    from .draft import layer_fields

    fields = layer_fields(config.train.draft, verifier)
    heads, groups, size = (fields[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    if heads % groups or size % 2:
        raise UsageError(
            "The draft's heads must divide by its key/value heads, and their size by two (rotary embedding).",
            f"{heads} heads, {groups} key/value heads, head size {size}",
            "Correct train.draft.",
        )


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a checkpoint with code of its own unless the run trusts it.

    Args:
        model: Folder or Hugging Face id.
        trusted: ``trust_remote_code`` of the run.

    Raises:
        UsageError: A loader would run code that the checkpoint brings.
    """
    if trusted:
        return
    for name, loaders in CODE_FILES.items():
        code = _read(model, name).get("auto_map") or {}
        # Older tokenizers list the classes instead of naming the loader.
        named = [code] if not isinstance(code, dict) else [code[key] for key in loaders if key in code]
        if named:
            raise UsageError(
                f"{model} brings Python code of its own, and its loaders would run it.",
                f"auto_map in {name} names {named[0]}, and trust_remote_code is off",
                "Read that code, then set trust_remote_code: true in the configuration.",
            )


def turn_end_ids(config: RunConfig, verifier: Verifier) -> list[int]:
    """Ids of the tokens that end a turn or a text.

    Args:
        config: The run.
        verifier: Its verifier.

    Returns:
        What generation stops at (``eos_token_id`` of generation_config.json and of the config), the tokenizer's
        ``eos_token``, and ``<|im_end|>`` where it is a token; ascending.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(config.verifier, trust_remote_code=config.trust_remote_code)
    named = tokenizer.convert_tokens_to_ids(IM_END)
    found = [named] if named is not None and tokenizer.convert_ids_to_tokens(named) == IM_END else []
    stops = _read(config.verifier, "generation_config.json").get("eos_token_id")
    for ids in (stops, getattr(verifier.text, "eos_token_id", None), tokenizer.eos_token_id):
        found += ids if isinstance(ids, list) else [ids]
    return sorted({token for token in found if isinstance(token, int) and 0 <= token < verifier.vocab_size})


def read_config(model: str) -> dict[str, Any]:
    """``config.json`` of a checkpoint, as data.

    Args:
        model: Folder or Hugging Face id.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    raw = _read(model, "config.json")
    if not raw:
        raise UsageError(
            "model must be a checkpoint folder or a Hugging Face id whose config can be read.",
            f"no config.json in {model}",
            "Correct the name, or download the checkpoint first.",
        )
    return raw


def _read(model: str, name: str) -> dict[str, Any]:
    """One JSON file of a checkpoint; empty if there is none."""
    path = Path(model) / name
    if not Path(model).is_dir():
        from transformers.utils import cached_file

        try:
            found = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
        except (OSError, ValueError) as error:  # ValueError: two slashes can be no Hugging Face id
            raise _unreadable(model, error) from error
        path = Path(found) if found else path
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(model, error) from error
    return content if isinstance(content, dict) else {}


def _check_data(data: str) -> None:
    if data.startswith("hf:") or not data.endswith((".json", ".jsonl")):
        return  # a data set's name: only speculators knows them, the step asks it
    if not Path(data).is_file():
        raise UsageError("prepare.data must be a readable file.", f"{data} does not exist", "Correct the path.")


def _load(config: RunConfig) -> Verifier:
    from transformers import AutoConfig

    try:
        loaded = AutoConfig.from_pretrained(config.verifier, trust_remote_code=config.trust_remote_code)
    except (OSError, ValueError) as error:
        raise _unreadable(config.model, error) from error
    text = loaded.get_text_config() if hasattr(loaded, "get_text_config") else loaded
    layer_ids = config.layer_ids
    if layer_ids is None:
        layer_ids = default_layer_ids(int(text.num_hidden_layers))
    return Verifier(loaded, text, list(layer_ids))


def _unreadable(model: str, error: Exception) -> UsageError:
    return UsageError(
        "model must be a checkpoint folder or a Hugging Face id whose config can be read.",
        f"{model}: {error}".splitlines()[0],
        "Correct the name, or download the checkpoint first.",
    )
