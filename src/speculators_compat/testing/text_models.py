"""Tiny text-only checkpoints: Llama, Qwen3, Qwen3-MoE and Gemma 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculators_compat.testing.checkpoint import (
    DTYPES,
    prepare_directory,
    require,
    write_json,
    write_tensors,
)
from speculators_compat.testing.tokenizers import FAST_SPECIAL_TOKENS, write_fast_tokenizer
from speculators_compat.testing.weights import WeightMaker

if TYPE_CHECKING:
    import torch

    Tensors = Iterator[tuple[str, torch.Tensor]]

#: Head size: vLLM 0.16.0's CPU attention has kernels for 32 and 64, not for 16.
HEAD_DIM = 32
MAX_POSITIONS = 4096
_IDS = {name: identity for identity, name in enumerate(FAST_SPECIAL_TOKENS)}


@dataclass(frozen=True)
class TextShape:
    """Sizes of a tiny text model; every one splits over eight ranks.

    Attributes:
        num_hidden_layers: Decoder layers.
        hidden_size: Width of the residual stream, a multiple of 64.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads.
        head_dim: Size of a head; vLLM's GPU kernels want 64 or more.
        intermediate_size: Width of a dense feed-forward block.
        vocab_size: Vocabulary, a multiple of 64, at least 320.
        seed: Seed of the weights.
        dtype: ``"float32"`` or ``"bfloat16"``.
        shards: Safetensors files to write.
    """

    num_hidden_layers: int = 4
    hidden_size: int = 128
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = HEAD_DIM
    intermediate_size: int = 256
    vocab_size: int = 512
    seed: int = 0
    dtype: str = "float32"
    shards: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that no engine could load or split.

        Raises:
            ValueError: If a size does not fit; the message names it.
        """
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        require(self.dtype in DTYPES, f"dtype one of {DTYPES}", self.dtype, "choose one of them")
        require(self.num_hidden_layers >= 1, "a layer or more", self.num_hidden_layers, "add one")
        fits = self.hidden_size > 0 and self.hidden_size % 64 == 0
        require(fits, "hidden_size a multiple of 64", self.hidden_size, "round it up")
        fits = self.vocab_size >= 320 and self.vocab_size % 64 == 0
        require(fits, "vocab_size a multiple of 64, from 320", self.vocab_size, "round it up")
        require(heads % kv_heads == 0, "query heads a multiple of kv heads", (heads, kv_heads), "")
        fits = self.head_dim > 0 and self.head_dim % 2 == 0
        require(fits, "an even head_dim", self.head_dim, "rotary embedding turns pairs")


@dataclass(frozen=True)
class _Family:
    """What tells one architecture from another.

    Attributes:
        model_type: Hugging Face model type.
        architecture: Hugging Face class name.
        config: Extra configuration entries.
        norms: Norms of a layer that act on the residual width.
        router_norm: Which of them feeds the feed-forward block.
        qk_norm: Whether queries and keys are normalised per head.
        norm_centre: 1, or 0 for Gemma, which adds one to its norm weights.
        final_norm_centre: The same for the norm before the output projection.
        embedding_std: Standard deviation of the embedding table.
        tied: Whether the output projection is the embedding table.
        num_experts: Routed experts of each layer, 0 for dense ones.
        experts_per_token: Experts chosen for a token.
        expert_size: Width of one expert.
    """

    model_type: str
    architecture: str
    config: dict[str, Any] = field(default_factory=dict)
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    router_norm: str = "post_attention_layernorm"
    qk_norm: bool = False
    norm_centre: float = 1.0
    final_norm_centre: float = 1.0
    embedding_std: float = 1.0
    tied: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 64


def make_llama(directory: str | Path, **options: Any) -> Path:
    """Write a tiny Llama (``LlamaForCausalLM``).

    Args:
        directory: New or empty folder for the checkpoint.
        **options: Fields of ``TextShape``.

    Returns:
        The folder.

    Raises:
        ValueError: If a size or the folder does not fit.
        TypeError: If an option is unknown.
    """
    return _write(directory, TextShape(**options), _Family("llama", "LlamaForCausalLM"))


def make_qwen3(directory: str | Path, **options: Any) -> Path:
    """Write a tiny dense Qwen3 (``Qwen3ForCausalLM``): per-head norms of queries and keys.

    Args, result and errors as for ``make_llama``.
    """
    family = _Family("qwen3", "Qwen3ForCausalLM", qk_norm=True)
    return _write(directory, TextShape(**options), family)


def make_qwen3_moe(directory: str | Path, *, num_experts: int = 8, experts_per_token: int = 2, **options: Any) -> Path:
    """Write a tiny Qwen3-MoE (``Qwen3MoeForCausalLM``): softmax routing, every layer routed.

    Args:
        directory: New or empty folder for the checkpoint.
        num_experts: Routed experts of each layer.
        experts_per_token: Experts chosen for a token.
        **options: Fields of ``TextShape``.

    Returns:
        The folder.

    Raises:
        ValueError: If a size or the folder does not fit.
        TypeError: If an option is unknown.
    """
    chosen = (experts_per_token, num_experts)
    require(0 < chosen[0] <= chosen[1], "1 to num_experts experts a token", chosen, "change one")
    family = _Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        config={
            "num_experts": num_experts,
            "num_experts_per_tok": experts_per_token,
            "moe_intermediate_size": _Family.expert_size,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
        },
        qk_norm=True,
        num_experts=num_experts,
        experts_per_token=experts_per_token,
    )
    return _write(directory, TextShape(**options), family)


def make_gemma3(
    directory: str | Path,
    *,
    sliding_window: int = 64,
    full_attention_every: int = 3,
    **options: Any,
) -> Path:
    """Write a tiny Gemma 3 (``Gemma3ForCausalLM``): sliding and full attention, tied embeddings.

    Args:
        directory: New or empty folder for the checkpoint.
        sliding_window: Tokens that a sliding layer sees.
        full_attention_every: Every n-th layer has full attention, the others slide.
        **options: Fields of ``TextShape``.

    Returns:
        The folder.

    Raises:
        ValueError: If a size or the folder does not fit, or one layer type would be missing.
        TypeError: If an option is unknown.
    """
    shape = TextShape(**options)
    mixed = 2 <= full_attention_every <= shape.num_hidden_layers
    found = (full_attention_every, shape.num_hidden_layers)
    require(mixed, "2 <= full_attention_every <= num_hidden_layers", found, "add layers")
    layers = range(1, shape.num_hidden_layers + 1)
    family = _Family(
        "gemma3_text",
        "Gemma3ForCausalLM",
        config={
            "sliding_window": sliding_window,
            "layer_types": [
                "sliding_attention" if layer % full_attention_every else "full_attention" for layer in layers
            ],
            "query_pre_attn_scalar": shape.head_dim,
            "hidden_activation": "gelu_pytorch_tanh",
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ),
        qk_norm=True,
        norm_centre=0.0,
        # Gemma multiplies embeddings by the root of their width. Kept small beside the layers'
        # output and made up for by the final norm: tied to the output, a large embedding would
        # make every model repeat its last token.
        embedding_std=0.3 * shape.hidden_size**-0.5,
        final_norm_centre=8.0,
        tied=True,
    )
    return _write(directory, shape, family)


def _write(directory: str | Path, shape: TextShape, family: _Family) -> Path:
    path = prepare_directory(directory)
    write_tensors(path, dict(_tensors(shape, family)), shape.shards)
    write_fast_tokenizer(path, shape.vocab_size)
    write_json(path / "config.json", _config(shape, family))
    identities = {f"{role}_token_id": _IDS[f"<{role}>"] for role in ("bos", "pad")}
    ends = [_IDS["<|im_end|>"], _IDS["<eos>"]]
    write_json(path / "generation_config.json", {**identities, "eos_token_id": ends})
    return path


def _config(shape: TextShape, family: _Family) -> dict[str, Any]:
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "attention_bias": False,
        "tie_word_embeddings": family.tied,
        "bos_token_id": _IDS["<bos>"],
        "eos_token_id": _IDS["<|im_end|>"],
        "pad_token_id": _IDS["<pad>"],
        "torch_dtype": shape.dtype,
        **family.config,
    }


def _tensors(shape: TextShape, family: _Family) -> Tensors:
    make = WeightMaker(
        seed=shape.seed,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        dtype=shape.dtype,
        routed=family.num_experts > 0,
    )
    name = "model.embed_tokens.weight"
    yield name, make.embedding(name, shape.vocab_size, family.embedding_std)
    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        yield from _attention(make, f"{prefix}.self_attn", shape, family)
        norms = {
            norm: make.norm(f"{prefix}.{norm}.weight", shape.hidden_size, family.norm_centre) for norm in family.norms
        }
        yield from ((f"{prefix}.{norm}.weight", weight) for norm, weight in norms.items())
        if family.num_experts:
            yield from _experts(make, f"{prefix}.mlp", shape, family, norms[family.router_norm])
        else:
            yield from feed_forward(make, f"{prefix}.mlp", shape.hidden_size, shape.intermediate_size)
    name = "model.norm.weight"
    yield name, make.norm(name, shape.hidden_size, family.final_norm_centre)
    if not family.tied:
        yield "lm_head.weight", output_projection(make, "lm_head.weight", shape)


def _attention(make: WeightMaker, prefix: str, shape: TextShape, family: _Family) -> Tensors:
    queries, values = (heads * shape.head_dim for heads in (shape.num_attention_heads, shape.num_key_value_heads))
    for part, rows in (("q_proj", queries), ("k_proj", values), ("v_proj", values)):
        name = f"{prefix}.{part}.weight"
        yield name, make.linear(name, rows, shape.hidden_size)
    name = f"{prefix}.o_proj.weight"
    yield name, make.branch(name, shape.hidden_size, queries)
    if family.qk_norm:
        for part in ("q_norm", "k_norm"):
            name = f"{prefix}.{part}.weight"
            yield name, make.norm(name, shape.head_dim, family.norm_centre)


def _experts(make: WeightMaker, prefix: str, shape: TextShape, family: _Family, norm: torch.Tensor) -> Tensors:
    name = f"{prefix}.gate.weight"
    weight, _ = make.router(name, family.num_experts, family.experts_per_token, norm, sigmoid=False)
    yield name, weight
    for expert in range(family.num_experts):
        expert_prefix = f"{prefix}.experts.{expert}"
        yield from feed_forward(make, expert_prefix, shape.hidden_size, family.expert_size)


def feed_forward(make: WeightMaker, prefix: str, hidden: int, width: int) -> Tensors:
    """Gated feed-forward block: ``gate_proj``, ``up_proj`` and ``down_proj`` under ``prefix``."""
    for part in ("gate_proj", "up_proj"):
        name = f"{prefix}.{part}.weight"
        yield name, make.linear(name, width, hidden)
    name = f"{prefix}.down_proj.weight"
    yield name, make.branch(name, hidden, width)


def output_projection(make: WeightMaker, name: str, shape: Any) -> torch.Tensor:
    """Output projection whose logits have a spread of about 3, so that a greedy choice is clear."""
    return make.linear(name, shape.vocab_size, shape.hidden_size, gain=3.0)
