"""A tiny Kimi-K2.5 checkpoint: multimodal wrapper, MLA and MoE text model, remote code.

Names and structure follow the published model; every size is a fixture. Sources: the model card
and configuration of moonshotai/Kimi-K2.5 as vLLM and transformers read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculators_compat.testing.checkpoint import (
    DTYPES,
    prepare_directory,
    require,
    write_json,
    write_tensors,
)
from speculators_compat.testing.text_models import feed_forward, output_projection
from speculators_compat.testing.tokenizers import kimi_special_ids, write_kimi_vocabulary
from speculators_compat.testing.weights import WeightMaker

if TYPE_CHECKING:
    import torch

    Tensors = Iterator[tuple[str, torch.Tensor]]

REMOTE_CODE = (
    "configuration_kimi_k25.py",
    "tokenization_kimi.py",
    "kimi_k25_vision_processing.py",
    "chat_template.jinja",
)
#: Prefix of the text model's tensors in the checkpoint.
TEXT_PREFIX = "language_model."
#: Vision tower of the fixture. Heads must split over the ranks even when no picture is ever sent.
VISION: dict[str, Any] = {
    "patch_size": 14,
    "init_pos_emb_height": 16,
    "init_pos_emb_width": 16,
    "init_pos_emb_time": 4,
    "pos_emb_type": "divided_fixed",
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool",
    "video_attn_type": "spatial_temporal",
    "mm_projector_type": "patchmerger",
}
#: Factor 64 as the real model's, over 64 positions instead of 4096 so that short prompts feel it.
YARN = {
    "type": "yarn",
    "factor": 64.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@dataclass(frozen=True)
class KimiShape:
    """Sizes of a tiny Kimi-K2.5; the defaults split over eight ranks.

    Attributes:
        num_hidden_layers: Decoder layers; layer 0 is dense, the others are routed.
        hidden_size: Width of the residual stream, a multiple of 64.
        num_attention_heads: Heads of the latent attention.
        num_experts: Routed experts of a routed layer.
        experts_per_token: Experts chosen for a token.
        q_lora_rank: Width of the compressed query.
        kv_lora_rank: Width of the compressed key and value.
        qk_nope_head_dim: Part of a head without rotary embedding.
        qk_rope_head_dim: Part of a head with it. The two sum to the head size, for which vLLM's CPU
            attention has kernels at 32 and 64 (not at 16) when latent attention is disabled.
        v_head_dim: Value width of a head.
        intermediate_size: Width of the dense block of layer 0.
        moe_intermediate_size: Width of an expert and of the shared expert.
        vocab_size: Vocabulary, a multiple of 64, at least 512; its last 256 ids are special.
        yarn: YaRN rotary scaling, as the real model has it; without it vLLM takes another rotary
            class, with a kernel of its own on the CPU.
        embedding_std: Size of the embeddings (not of the routing code in them). Below 1 the layers have more of a
            say in the residual stream, and the states of neighbouring layers differ more.
        seed: Seed of the weights.
        dtype: ``"float32"`` or ``"bfloat16"``.
        shards: Safetensors files to write.
    """

    num_hidden_layers: int = 6
    hidden_size: int = 128
    num_attention_heads: int = 8
    num_experts: int = 8
    experts_per_token: int = 2
    q_lora_rank: int = 64
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 16
    qk_rope_head_dim: int = 16
    v_head_dim: int = 16
    intermediate_size: int = 256
    moe_intermediate_size: int = 64
    vocab_size: int = 768
    yarn: bool = True
    embedding_std: float = 1.0
    seed: int = 0
    dtype: str = "float32"
    shards: int = 2

    def __post_init__(self) -> None:
        """Refuse sizes that no engine could load or split.

        Raises:
            ValueError: If a size does not fit; the message names it.
        """
        chosen = (self.experts_per_token, self.num_experts)
        require(self.dtype in DTYPES, f"dtype one of {DTYPES}", self.dtype, "choose one of them")
        require(self.num_hidden_layers >= 2, "2 layers or more", self.num_hidden_layers, "add one")
        fits = self.hidden_size > 0 and self.hidden_size % 64 == 0
        require(fits, "hidden_size a multiple of 64", self.hidden_size, "round it up")
        fits = self.vocab_size >= 512 and self.vocab_size % 64 == 0
        require(fits, "vocab_size a multiple of 64, from 512", self.vocab_size, "round it up")
        require(0 < chosen[0] <= chosen[1], "1 to num_experts experts", chosen, "change one")

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


def make_kimi_k25(directory: str | Path, **options: Any) -> Path:
    """Write a tiny Kimi-K2.5 (``KimiK25ForConditionalGeneration``).

    The folder needs ``trust_remote_code=True`` in transformers 4; the code it runs is this
    package's. vLLM also wants ``limit_mm_per_prompt={"vision_chunk": 0}`` and
    ``skip_mm_profiling=True`` to start without profiling on pictures, and ``VLLM_MLA_DISABLE=1`` on
    a CPU before 0.28.

    Args:
        directory: New or empty folder for the checkpoint.
        **options: Fields of ``KimiShape``.

    Returns:
        The folder.

    Raises:
        ValueError: If a size or the folder does not fit.
        TypeError: If an option is unknown.
    """
    shape = KimiShape(**options)
    path = prepare_directory(directory)
    write_tensors(path, dict(_tensors(shape)), shape.shards)
    write_kimi_vocabulary(path, shape.vocab_size)
    source = files(__package__) / "kimi_remote_code"
    for name in REMOTE_CODE:
        (path / name).write_bytes((source / name).read_bytes())
    ids = kimi_special_ids(shape.vocab_size)
    write_json(path / "config.json", _config(shape, ids))
    write_json(path / "preprocessor_config.json", _preprocessor_config())
    tokens = {"bos_token_id": ids["[BOS]"], "pad_token_id": ids["[PAD]"]}
    generation = {**tokens, "eos_token_id": [ids["<|im_end|>"], ids["[EOS]"]]}
    write_json(path / "generation_config.json", generation)
    return path


def _preprocessor_config() -> dict[str, Any]:
    processor = "kimi_k25_vision_processing.KimiK25VisionProcessor"
    return {
        "auto_map": {"AutoImageProcessor": processor},
        "image_processor_type": "KimiK25VisionProcessor",
        "patch_size": VISION["patch_size"],
        "merge_kernel_size": 2,
        "num_frames_per_chunk": VISION["init_pos_emb_time"],
        # Read by vLLM's own image processor, which takes the remote one's place from 0.26 on
        # (transformers_utils/processors/kimi_k25_vision_fused.py).
        "media_proc_cfg": {
            "patch_size": VISION["patch_size"],
            "merge_kernel_size": 2,
            "temporal_merge_kernel_size": VISION["init_pos_emb_time"],
            "in_patch_limit": 256,
            "in_patch_limit_each_frame": 256,
            "in_patch_limit_video": None,
            "patch_limit_on_one_side": 16,
            "fixed_output_tokens": None,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    }


def _config(shape: KimiShape, ids: dict[str, int]) -> dict[str, Any]:
    configuration = "configuration_kimi_k25.KimiK25Config"
    tokens = {
        "bos_token_id": ids["[BOS]"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["[PAD]"],
    }
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "auto_map": {"AutoConfig": configuration},
        "text_config": {**_text_config(shape), **tokens},
        "vision_config": {
            "model_type": "kimi_k25_vision",
            **VISION,
            # vLLM reads "equal to the vision width" as "project to the text width".
            "mm_hidden_size": VISION["hidden_size"],
            "text_hidden_size": shape.hidden_size,
        },
        "media_placeholder_token_id": ids["<|media_pad|>"],
        "ignore_index": -100,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
        **tokens,
    }


def _text_config(shape: KimiShape) -> dict[str, Any]:
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "intermediate_size": shape.intermediate_size,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_attention_heads,
        "q_lora_rank": shape.q_lora_rank,
        "kv_lora_rank": shape.kv_lora_rank,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "v_head_dim": shape.v_head_dim,
        "n_routed_experts": shape.num_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.827,
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": 4096,
        "rope_theta": 50000.0,
        "rope_scaling": YARN if shape.yarn else None,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
    }


def _tensors(shape: KimiShape) -> Tensors:
    make = WeightMaker(
        seed=shape.seed,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        dtype=shape.dtype,
        routed=True,
    )
    model = f"{TEXT_PREFIX}model"
    name = f"{model}.embed_tokens.weight"
    yield name, make.embedding(name, shape.vocab_size, shape.embedding_std)
    for layer in range(shape.num_hidden_layers):
        yield from _layer(make, f"{model}.layers.{layer}", shape, routed=layer > 0)
    name = f"{model}.norm.weight"
    yield name, make.norm(name, shape.hidden_size)
    name = f"{TEXT_PREFIX}lm_head.weight"
    yield name, output_projection(make, name, shape)
    yield from _vision_tower(make)
    yield from _projector(make, shape.hidden_size)


def _layer(make: WeightMaker, prefix: str, shape: KimiShape, *, routed: bool) -> Tensors:
    yield from _latent_attention(make, f"{prefix}.self_attn", shape)
    name = f"{prefix}.input_layernorm.weight"
    yield name, make.norm(name, shape.hidden_size)
    name = f"{prefix}.post_attention_layernorm.weight"
    norm = make.norm(name, shape.hidden_size)
    yield name, norm
    if routed:
        yield from _experts(make, f"{prefix}.mlp", shape, norm)
    else:
        yield from feed_forward(make, f"{prefix}.mlp", shape.hidden_size, shape.intermediate_size)


def _latent_attention(make: WeightMaker, prefix: str, shape: KimiShape) -> Tensors:
    heads, hidden = shape.num_attention_heads, shape.hidden_size
    projections = {
        "q_a_proj": (shape.q_lora_rank, hidden),
        "q_b_proj": (heads * shape.qk_head_dim, shape.q_lora_rank),
        "kv_a_proj_with_mqa": (shape.kv_lora_rank + shape.qk_rope_head_dim, hidden),
        "kv_b_proj": (heads * (shape.qk_nope_head_dim + shape.v_head_dim), shape.kv_lora_rank),
    }
    for part, (rows, columns) in projections.items():
        name = f"{prefix}.{part}.weight"
        yield name, make.linear(name, rows, columns)
    for part, size in (
        ("q_a_layernorm", shape.q_lora_rank),
        ("kv_a_layernorm", shape.kv_lora_rank),
    ):
        name = f"{prefix}.{part}.weight"
        yield name, make.norm(name, size)
    name = f"{prefix}.o_proj.weight"
    yield name, make.branch(name, hidden, heads * shape.v_head_dim)


def _experts(make: WeightMaker, prefix: str, shape: KimiShape, norm: torch.Tensor) -> Tensors:
    name = f"{prefix}.gate.weight"
    weight, bias = make.router(name, shape.num_experts, shape.experts_per_token, norm, sigmoid=True)
    yield name, weight
    yield f"{prefix}.gate.e_score_correction_bias", bias
    for part in (*(f"experts.{expert}" for expert in range(shape.num_experts)), "shared_experts"):
        yield from feed_forward(make, f"{prefix}.{part}", shape.hidden_size, shape.moe_intermediate_size)


def _affine(make: WeightMaker, prefix: str, rows: int, columns: int) -> Tensors:
    yield f"{prefix}.weight", make.linear(f"{prefix}.weight", rows, columns)
    yield f"{prefix}.bias", make.normal(f"{prefix}.bias", (rows,), 0.1)


def _layer_norm(make: WeightMaker, prefix: str, size: int) -> Tensors:
    yield f"{prefix}.weight", make.norm(f"{prefix}.weight", size)
    yield f"{prefix}.bias", make.normal(f"{prefix}.bias", (size,), 0.1)


def _vision_tower(make: WeightMaker) -> Tensors:
    size: int = VISION["hidden_size"]
    width: int = VISION["intermediate_size"]
    patch: int = VISION["patch_size"]
    name = "vision_tower.patch_embed.proj.weight"
    yield name, make.normal(name, (size, 3, patch, patch), 1 / patch)
    name = "vision_tower.patch_embed.proj.bias"
    yield name, make.normal(name, (size,), 0.1)
    name = "vision_tower.patch_embed.pos_emb.weight"
    grid = (VISION["init_pos_emb_height"], VISION["init_pos_emb_width"], size)
    yield name, make.normal(name, grid, 0.5)
    for block in range(VISION["num_hidden_layers"]):
        prefix = f"vision_tower.encoder.blocks.{block}"
        yield from _layer_norm(make, f"{prefix}.norm0", size)
        yield from _layer_norm(make, f"{prefix}.norm1", size)
        yield from _affine(make, f"{prefix}.wqkv", 3 * size, size)
        yield from _affine(make, f"{prefix}.wo", size, size)
        yield from _affine(make, f"{prefix}.mlp.fc0", width, size)
        yield from _affine(make, f"{prefix}.mlp.fc1", size, width)
    yield from _layer_norm(make, "vision_tower.encoder.final_layernorm", size)


def _projector(make: WeightMaker, text_size: int) -> Tensors:
    size: int = VISION["hidden_size"]
    merged = size * 4
    yield from _layer_norm(make, "mm_projector.pre_norm", size)
    yield from _affine(make, "mm_projector.proj.0", merged, merged)
    yield from _affine(make, "mm_projector.proj.2", text_size, merged)
