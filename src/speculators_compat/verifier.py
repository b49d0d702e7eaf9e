"""A verifier's checkpoint as training needs it: its language model's config and tensor names.

A multimodal wrapper (Kimi-K2.5, Qwen-VL style) keeps its language model one level down, in the
config as ``text_config`` and in the checkpoint under a prefix. Both are read as data: no remote
code is executed, and no tensor is chosen by its place in a list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .drift import UsageError

__all__ = [
    "NORM",
    "OFFSET_NORMS",
    "checkpoint_keys",
    "load_tensors",
    "norm_offset",
    "offsets_norm",
    "resolve_names",
    "text_config",
    "text_fields",
]

NORM = "model.norm.weight"

OFFSET_NORMS = frozenset(
    {
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "intern_s2_preview",
        "interns2_mobius",
        "minimax_m3_text",
        "minimax_m3_vl",
        "minimax_m3_vl_text",
        "plamo2",
        "plamo3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "recurrent_gemma",
        "step3p5",
        "step3p7",
        "t5gemma",
        "vaultgemma",
    }
)
"""Model types, of language models and of what wraps them, whose final RMSNorm multiplies by (1 + weight): transformers
4.57 to 5.19 (``modeling_*.py``) and vLLM 0.32 (https://github.com/vllm-project/vllm/tree/v0.32.0/vllm/model_executor/models:
``GemmaRMSNorm`` under any name, and an offset of one as weights are loaded)."""

_WRAPPED = ("text_config", "llm_config", "language_config")
_SHARED = ("model_type", "pad_token_id", "tie_word_embeddings")
_ROTARY = frozenset({"rope_theta", "rope_scaling", "rope_parameters"})
_REQUIRED = ("hidden_size", "vocab_size", "rms_norm_eps")


def text_config(name_or_path: str, load: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Read the config of a verifier's language model without executing remote code.

    Args:
        name_or_path: Model folder or Hub id.
        load: What reads a config whose type transformers knows; ``AutoConfig.from_pretrained`` by
            default.
        **kwargs: Download options (``revision``, ``token``, ...), handed on.

    Returns:
        A ``transformers.PretrainedConfig`` with at least ``hidden_size``, ``vocab_size`` and
        ``pad_token_id``: the model's own class where transformers knows it, a plain one with the
        same attributes otherwise.

    Raises:
        UsageError: Neither transformers nor the file itself says what a draft must match.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

    raw, _ = PretrainedConfig.get_config_dict(name_or_path, **kwargs)
    nested = next((raw[key] for key in _WRAPPED if isinstance(raw.get(key), dict)), None)
    if raw.get("model_type") in CONFIG_MAPPING:
        config = (load or AutoConfig.from_pretrained)(name_or_path, **kwargs)
        # A known wrapper fills in the defaults that its text_config leaves out.
        return config.get_text_config(decoder=True) if nested is not None else config
    return _plain_config(name_or_path, raw if nested is None else _flatten(raw, nested))


def text_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """The language model's fields of a ``config.json``, as they stand: defaults of its class are not filled in.

    Args:
        raw: The whole file's content.
    """
    nested = next((raw[key] for key in _WRAPPED if isinstance(raw.get(key), dict)), None)
    return raw if nested is None else _flatten(raw, nested)


def _flatten(raw: dict[str, Any], nested: dict[str, Any]) -> dict[str, Any]:
    """The language model's fields, and those that wrappers may keep at the top."""
    shared: dict[str, Any] = {key: raw[key] for key in _SHARED if key in raw}
    return {**shared, **nested}


def _plain_config(name_or_path: str, fields: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING, PretrainedConfig

    known = fields.get("model_type") in CONFIG_MAPPING
    missing = [key for key in _REQUIRED if key not in fields]
    if missing and not known:
        raise UsageError(
            required=f"The verifier's config.json must state {', '.join(_REQUIRED)}.",
            found=(f"{name_or_path} (model_type {fields.get('model_type')!r}) without {', '.join(missing)}"),
            way_out=("Add the fields to its config.json, or use a transformers release that knows the model type."),
        )
    # auto_map would make transformers look for remote code when this config is saved or reloaded.
    fields = {key: value for key, value in fields.items() if key != "auto_map"}
    if known:
        return CONFIG_MAPPING[fields["model_type"]].from_dict(fields)
    # transformers 5 rewrites the rotary fields of a new config by others that a plain one has not taken yet.
    config = PretrainedConfig.from_dict({key: value for key, value in fields.items() if key not in _ROTARY})
    for key in _ROTARY & fields.keys():
        setattr(config, key, fields[key])
    return config


def norm_offset(config: Any) -> float:
    """What a model type adds to the weight of its final norm: 1 for Gemma's kind, else 0.

    Args:
        config: The language model's config, from :func:`text_config`.

    Raises:
        UsageError: The config states no ``rms_norm_eps``: its final norm is not an RMSNorm.
    """
    if getattr(config, "rms_norm_eps", None) is None:
        raise UsageError(
            required="The verifier's final norm must be an RMSNorm to compute training targets.",
            found=f"model_type {getattr(config, 'model_type', None)!r} without rms_norm_eps",
            way_out="speculators can train a draft for RMSNorm verifiers only.",
        )
    return 1.0 if getattr(config, "model_type", None) in OFFSET_NORMS else 0.0


def offsets_norm(name_or_path: str) -> bool:
    """Whether a verifier's final norm multiplies by (1 + weight), whatever else its config leaves unsaid.

    Args:
        name_or_path: Model folder or Hub id.
    """
    from transformers import PretrainedConfig

    raw, _ = PretrainedConfig.get_config_dict(name_or_path)
    return not OFFSET_NORMS.isdisjoint({raw.get("model_type"), text_fields(raw).get("model_type")})


def checkpoint_keys(name_or_path: str) -> tuple[str, ...]:
    """Every tensor name of a safetensors checkpoint, sharded or single-file, local or on the Hub.

    Raises:
        FileNotFoundError: A local folder holds neither an index nor ``model.safetensors``.
    """
    from safetensors import safe_open
    from speculators.utils.loading import EntryNotFoundError, _resolve_file

    try:
        index = _resolve_file(name_or_path, "model.safetensors.index.json")
    except (FileNotFoundError, EntryNotFoundError):
        with safe_open(_resolve_file(name_or_path, "model.safetensors"), framework="pt") as file:
            return tuple(file.keys())
    return tuple(json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"])


def resolve_names(asked: Iterable[str], keys: Iterable[str]) -> dict[str, str]:
    """Find the language model's own tensors among a checkpoint's names.

    The decoder stack is recognised by its structure: the prefix that has both ``layers.0.`` and
    ``embed_tokens.weight``. A vision tower has no embedding table, a multi-token-prediction layer
    no ``layers.0.``. ``lm_head`` stands beside the stack or further up
    (``language_model.lm_head.weight``, ``lm_head.weight``).

    Args:
        asked: Names as text models have them: ``model.embed_tokens.weight``, ``lm_head.weight``,
            ...
        keys: The checkpoint's tensor names.

    Returns:
        Asked name to checkpoint name; what the checkpoint does not hold is left out.

    Raises:
        UsageError: More than one language model answers.
    """
    available = set(keys)
    prefix = _stack_prefix(available)
    found = {}
    for name in asked:
        tail = name.removeprefix("model.")
        places = [name, tail] if prefix is None else [place + tail for place in _upwards(prefix, tail)]
        match = next((place for place in places if place in available), None)
        if match is not None:
            found[name] = match
    return found


def _stack_prefix(available: set[str]) -> str | None:
    tables = {_before(key, "embed_tokens.weight") for key in available if key.endswith("embed_tokens.weight")}
    stacks = {_before(key, "layers.0.") for key in available}
    prefixes = sorted(prefix for prefix in tables & stacks if prefix is not None)
    named = [prefix for prefix in prefixes if "language_model" in prefix.split(".")] or prefixes
    if len(named) > 1:
        raise UsageError(
            required="The verifier's checkpoint must hold one language model.",
            found=f"several, under {', '.join(repr(prefix) for prefix in named)}",
            way_out="Name a checkpoint that holds the verifier alone.",
        )
    return named[0] if named else None


def _before(key: str, part: str) -> str | None:
    """What stands before whole path components: ``model.`` before ``layers.0.``."""
    before, found, _ = f".{key}".partition(f".{part}")
    return f"{before}."[1:] if found else None


def _upwards(prefix: str, tail: str) -> list[str]:
    """Where a tensor may stand: in the stack; the output head also above it."""
    if tail != "lm_head.weight":
        return [prefix]
    parts = prefix.split(".")[:-1]
    return ["".join(f"{part}." for part in parts[:depth]) for depth in range(len(parts), -1, -1)]


def load_tensors(
    asked: Sequence[str], name_or_path: str, load: Callable[[list[str], str], dict[str, Any]]
) -> dict[str, Any]:
    """Load a verifier's tensors under the names that were asked for.

    Args:
        asked: Names as text models have them.
        name_or_path: Model folder or Hub id.
        load: speculators' ``load_model_layers``.

    Returns:
        Asked name to tensor, CPU, dtype as stored. ``lm_head.weight`` is left out where the
        checkpoint ties it to the embeddings: speculators then uses the embeddings.

    Raises:
        UsageError: A tensor is missing, ambiguous, or stored quantised.
    """
    names = resolve_names(asked, checkpoint_keys(name_or_path))
    for name in asked:
        if name not in names:
            _check_may_be_missing(name, name_or_path)
    tensors = load(list(names.values()), name_or_path) if names else {}
    for key, tensor in tensors.items():
        if tensor.dtype.itemsize < 2 or not tensor.is_floating_point():
            raise UsageError(
                required=f"The verifier's {key} must be stored unquantised (16 bits or more).",
                found=f"dtype {tensor.dtype} in {name_or_path}",
                way_out=("Use a checkpoint whose embeddings, final norm and lm_head are not quantised."),
            )
    return {name: tensors[key] for name, key in names.items()}


def _check_may_be_missing(name: str, name_or_path: str) -> None:
    if name == "lm_head.weight" and getattr(text_config(name_or_path), "tie_word_embeddings", True):
        return
    raise UsageError(
        required=(f"The verifier's checkpoint must hold {name}, as such or under a wrapper's prefix."),
        found=f"no such tensor in {name_or_path}",
        way_out=("Check that the folder is complete; embeddings that serve as lm_head need tie_word_embeddings."),
    )
