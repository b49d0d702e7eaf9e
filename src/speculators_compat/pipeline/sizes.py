"""Sizes of what a run makes, in bytes: arithmetic only, no file is read and nothing is imported.

GB is 10^9 bytes throughout, as disks are sold and as ``df --si`` counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..drift import UsageError
from ..sample_files import FORMS, installed_form
from .config import RunConfig
from .verifier import Verifier

__all__ = [
    "DraftSize",
    "Item",
    "Shape",
    "batch_bytes",
    "draft_size",
    "readable",
    "sample_bytes",
    "state_bytes",
    "state_dtype_bytes",
    "total",
]

SAVED_WEIGHT_BYTES = 2
"""Bytes of one weight in a checkpoint: bfloat16 (speculators ``train/checkpointer.py``)."""

SAVED_OPTIMIZER_BYTES = 4
"""Bytes of one AdamW moment in a checkpoint: as it is in training (drift ``optimizer_state_dtype``)."""

MASTER_BYTES = 4
"""Bytes of one parameter, gradient or AdamW moment in training: the draft is trained in float32."""

INDEX_BYTES = 8  # one id, mask or position: int64
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}  # vLLM's "auto" turns float32 into 16 bits


@dataclass(frozen=True)
class Item:
    """One line of a plan.

    Attributes:
        name: What takes the space.
        bytes: How much; None if it cannot be known yet.
        how: The arithmetic, or why it is not known.
    """

    name: str
    bytes: int | None
    how: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON output."""
        return {"name": self.name, "bytes": self.bytes, "how": self.how}


def total(items: list[Item]) -> int:
    """Sum of what is known."""
    return sum(item.bytes or 0 for item in items)


def readable(number: int | None) -> str:
    """A number of bytes for people, in decimal units.

    Args:
        number: Bytes, or None for "unknown".
    """
    if number is None:
        return "unknown"
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:,.2f} {unit}"
    return f"{number} B"


@dataclass(frozen=True)
class Shape:
    """What the sizes of a run depend on.

    Attributes:
        hidden: Width of a hidden state.
        layers: Decoder layers of the verifier.
        heads: Attention heads.
        kv_heads: Key/value heads.
        head_dim: Size of a key or value head in the KV cache.
        latent: Values of a token in a layer's latent cache (``kv_lora_rank + qk_rope_head_dim``); None without MLA.
        captured: Layers whose states are kept.
        max_positions: Longest context, if the config says so.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int | None
    captured: int
    max_positions: int | None

    @classmethod
    def of(cls, verifier: Verifier) -> Shape:
        """Read a verifier's text config.

        Raises:
            UsageError: A field is missing or is no positive number.
        """
        text = verifier.text
        try:
            heads = _positive(text, "num_attention_heads")
            hidden = _positive(text, "hidden_size")
            latent = head_dim = None
            if getattr(text, "kv_lora_rank", None):
                latent = _positive(text, "kv_lora_rank") + _positive(text, "qk_rope_head_dim")
                head_dim = _positive(text, "qk_nope_head_dim") + _positive(text, "qk_rope_head_dim")
            return cls(
                hidden=hidden,
                layers=_positive(text, "num_hidden_layers"),
                heads=heads,
                # MLA without its latent cache keeps keys and values of all heads.
                kv_heads=heads if latent else int(getattr(text, "num_key_value_heads", None) or heads),
                head_dim=head_dim or int(getattr(text, "head_dim", None) or hidden // heads),
                latent=latent,
                captured=len(verifier.layer_ids),
                max_positions=verifier.max_positions,
            )
        except (TypeError, ValueError) as error:
            raise UsageError(
                "The verifier's config must give its sizes as positive numbers.", str(error), "Correct config.json."
            ) from error

    def longest_sample(self, config: RunConfig) -> int:
        """Tokens of the longest sample that the engine takes: one position is left for the sampled token."""
        return min(config.seq_length, (self.max_positions or config.seq_length + 1) - 1)

    def cache_bytes(self, tensor_parallel_size: int, value_bytes: int) -> tuple[int, str]:
        """KV cache of one token on one rank, all layers, and how it comes about.

        The latent of MLA is whole on every rank; keys and values are split by heads, at least one each.
        """
        if self.latent and os.environ.get("VLLM_MLA_DISABLE", "0") in ("", "0"):
            size = self.layers * self.latent * value_bytes
            return size, f"{self.layers} layers x {self.latent} (MLA latent, whole on every rank) x {value_bytes} B"
        heads = max(1, self.kv_heads // tensor_parallel_size)
        size = self.layers * 2 * heads * self.head_dim * value_bytes
        return size, f"{self.layers} layers x 2 x {heads} heads x {self.head_dim} x {value_bytes} B"


def _positive(text: Any, name: str) -> int:
    value = getattr(text, name, None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: {value!r}")
    return value


def state_dtype_bytes(config: RunConfig) -> int:
    """Bytes of one value of an extracted state."""
    return DTYPE_BYTES[config.extract.dtype]


def state_bytes(config: RunConfig, shape: Shape) -> int:
    """Captured states of one token (Kimi-K2.5: 4 x 7168 x 2 = 57,344)."""
    return shape.captured * shape.hidden * state_dtype_bytes(config)


def sample_bytes(config: RunConfig, shape: Shape, samples: int, tokens: int) -> int:
    """Sample files on the disk: states, ids and, where the form holds it, mask of every token, and their overhead."""
    files = FORMS[installed_form()]
    return tokens * (state_bytes(config, shape) + files.index_tensors * INDEX_BYTES) + samples * files.overhead


def batch_bytes(config: RunConfig, shape: Shape) -> int:
    """One packed training batch: states as they were stored (drift ``batch_dtype``), and ids, mask and positions."""
    return config.total_seq_len * (state_bytes(config, shape) + 3 * INDEX_BYTES)


@dataclass(frozen=True)
class DraftSize:
    """Parameters of a draft.

    Attributes:
        layers: In its decoder layers; trained.
        others: In ``fc``, the norm and the output head; trained.
        embedding: The verifier's embeddings; frozen, saved.
        verifier_head: The rows of the verifier's head that the draft's vocabulary has; frozen, not saved.
        vocab_sizes: Target and draft vocabulary.
    """

    layers: int
    others: int
    embedding: int
    verifier_head: int
    vocab_sizes: tuple[int, int]

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return self.layers + self.others

    @property
    def all(self) -> int:
        """Parameters in memory."""
        return self.trained + self.embedding + self.verifier_head

    @property
    def saved_weights(self) -> int:
        """Bytes of ``model.safetensors``: parameters, and t2d (bool) and d2t (int64)."""
        target, draft = self.vocab_sizes
        return (self.trained + self.embedding) * SAVED_WEIGHT_BYTES + target + draft * INDEX_BYTES

    @property
    def saved_optimizer(self) -> int:
        """Bytes of ``optimizer_state_dict.pt``: AdamW's two moments."""
        return 2 * self.trained * SAVED_OPTIMIZER_BYTES


def draft_size(fields: Mapping[str, Any], draft_vocab: int) -> DraftSize:
    """Count the parameters of ``Eagle3DraftModel`` (speculators 0.3 and 0.4).

    Its first layer reads embeddings and states side by side, so its attention is twice as wide on the input side.

    Args:
        fields: Arguments of the decoder layer's ``LlamaConfig`` (``layer_fields``).
        draft_vocab: Size of the draft's vocabulary.

    Raises:
        UsageError: A size is no number (some verifiers give one for each layer).
    """
    for name in ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"):
        if not isinstance(fields[name], int):
            raise UsageError(
                f"The draft's {name} must be one number.",
                f"{fields[name]!r} in the verifier's config",
                f"Set train.draft.{name}.",
            )
    hidden, target = fields["hidden_size"], fields["vocab_size"]
    queries = fields["num_attention_heads"] * fields["head_dim"]
    keys = fields["num_key_value_heads"] * fields["head_dim"]
    mlp = 3 * hidden * fields["intermediate_size"]
    first = 2 * hidden * (queries + 2 * keys) + queries * hidden + mlp + 3 * hidden
    further = hidden * (queries + 2 * keys) + queries * hidden + mlp + 2 * hidden
    return DraftSize(
        layers=first + (fields["num_hidden_layers"] - 1) * further,
        others=3 * hidden * hidden + hidden + draft_vocab * hidden,
        embedding=target * hidden,
        verifier_head=draft_vocab * hidden,
        vocab_sizes=(target, draft_vocab),
    )
