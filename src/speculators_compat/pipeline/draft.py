"""The draft's configuration: its decoder layer, and what vLLM must know to serve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..drift import UsageError
from ..layers import to_vllm_layer_ids
from .config import DraftConfig, RunConfig
from .verifier import Verifier

__all__ = ["decoder_config", "draft_config", "layer_fields", "mask_token"]

# Name under which speculators registers its attention (models/eagle3/attention.py); its masks fit
# no other.
ATTENTION = "simple_flex_attention"


def draft_config(config: RunConfig, verifier: Verifier) -> Any:
    """Build the ``Eagle3SpeculatorConfig`` to train.

    Args:
        config: The run.
        verifier: Its verifier.

    Returns:
        The config; ``eagle_aux_hidden_state_layer_ids`` is in vLLM's convention and leaves out the
        last layer, which is the target and no input.
    """
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import LlamaConfig

    layer = LlamaConfig(**layer_fields(config.train.draft, verifier))
    layer._attn_implementation = ATTENTION
    return Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=config.vocab.draft_vocab_size,
        norm_before_residual=config.train.draft.norm_before_residual,
        eagle_aux_hidden_state_layer_ids=to_vllm_layer_ids(verifier.layer_ids[:-1]),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=config.train.ttt_steps)],
            default_proposal_method="greedy",
            # The verifier's own config, not the draft layer's, so that its architecture is
            # recorded.
            verifier=VerifierConfig.from_config(verifier.config, name_or_path=config.verifier),
        ),
    )


def decoder_config(config: RunConfig, verifier: Verifier, settings: Mapping[str, Any]) -> Any:
    """Build the config of the draft's decoder layers, as the trainers of speculators 0.5 and later take it.

    Args:
        config: The run.
        verifier: Its verifier.
        settings: The trainer's own; from 0.7 on they limit attention to a window (``sliding_window``), but for the
            layers in ``full_attention_indices``.

    Returns:
        ``LlamaConfig`` for eagle3, ``Qwen3Config`` for the others, as upstream chooses.

    Raises:
        UsageError: A layer that is to see everything does not exist.
    """
    from transformers import LlamaConfig, Qwen3Config

    fields = layer_fields(config.train.draft, verifier)
    if settings.get("sliding_window"):
        fields |= _window(
            int(settings["sliding_window"]), settings["full_attention_indices"], config.train.draft.num_layers
        )
    return LlamaConfig(**fields) if config.train.algorithm == "eagle3" else Qwen3Config(**fields)


def _window(size: int, full: Sequence[int], layers: int) -> dict[str, Any]:
    if not set(full) <= set(range(layers)):
        raise UsageError(
            f"full_attention_indices must name layers of the draft, 0 to {layers - 1}.",
            f"{list(full)}",
            "Correct train.options, or train.draft.num_layers.",
        )
    kinds = ["full_attention" if layer in full else "sliding_attention" for layer in range(layers)]
    return {"sliding_window": size, "use_sliding_window": "sliding_attention" in kinds, "layer_types": kinds}


def mask_token(config: RunConfig, verifier: Verifier) -> int:
    """The token that stands for "not known yet" in drafts that predict a block at once.

    In upstream's order (``resolve_mask_token_id`` of ``train/utils.py``): what ``train.options`` says, the tokenizer's
    own, the first row of the embedding that no token uses, and, where the vocabulary is full, the token for padding,
    for the end of the text, or for what is unknown.

    Args:
        config: The run.
        verifier: Its verifier.

    Raises:
        UsageError: The verifier has none of these, or the run asks for a token that it does not have.
    """
    asked = config.train.options.get("mask_token_id")
    if asked is not None:
        if not isinstance(asked, int) or not 0 <= asked < verifier.vocab_size:
            raise UsageError(
                f"mask_token_id must be a token of the verifier, 0 to {verifier.vocab_size - 1}.",
                f"{asked!r}",
                "Correct train.options.",
            )
        return asked
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(config.verifier, trust_remote_code=config.trust_remote_code)
    free = len(tokenizer) if len(tokenizer) < verifier.vocab_size else None
    last = (getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos", "unk"))
    for token in (tokenizer.mask_token_id, free, *last):
        if token is not None:
            return int(token)
    raise UsageError(
        f"A draft of the kind {config.train.algorithm} needs a token that stands for what is not known yet.",
        f"{type(tokenizer).__name__} has no mask, padding, end or unknown token, and no row of the embedding is free",
        "Set mask_token_id in train.options.",
    )


def layer_fields(draft: DraftConfig, verifier: Verifier) -> dict[str, Any]:
    """Arguments of ``LlamaConfig`` for the draft's decoder layer.

    Heads and head size are always explicit: left out, they depend on which class read the
    verifier's config (64, 112 or 128 for Kimi-K2.5).

    Args:
        draft: What the run sets.
        verifier: Where the rest comes from.
    """
    text = verifier.text
    heads = draft.num_attention_heads or text.num_attention_heads
    return {
        "vocab_size": verifier.vocab_size,
        "hidden_size": verifier.hidden_size,
        "num_hidden_layers": draft.num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": draft.num_key_value_heads or _key_value_heads(text, heads),
        "head_dim": draft.head_dim or _head_dim(text),
        "intermediate_size": draft.intermediate_size or text.intermediate_size,
        "hidden_act": getattr(text, "hidden_act", None) or "silu",
        "rms_norm_eps": text.rms_norm_eps,
        "max_position_embeddings": draft.max_position_embeddings or verifier.max_positions or 2048,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        **_rope(draft, text),
    }


def _uses_mla(text: Any) -> bool:
    return bool(getattr(text, "kv_lora_rank", None))


def _key_value_heads(text: Any, heads: int) -> int:
    # MLA has one latent for all heads; num_key_value_heads says nothing there.
    own = getattr(text, "num_key_value_heads", None)
    return heads if _uses_mla(text) or not own or heads % own else int(own)


def _head_dim(text: Any) -> int:
    # DeepSeek's head_dim is the rotary part only (transformers DeepseekV3Config).
    own = text.v_head_dim if _uses_mla(text) else getattr(text, "head_dim", None)
    return int(own or text.hidden_size // text.num_attention_heads)


def _rope(draft: DraftConfig, text: Any) -> dict[str, Any]:
    # transformers 5 keeps base and scaling in one table
    table = dict(getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {})
    theta = draft.rope_theta or getattr(text, "rope_theta", None) or table.get("rope_theta") or 10000.0
    if isinstance(draft.rope_scaling, dict):
        table = dict(draft.rope_scaling)
    elif draft.rope_scaling == "none":
        table = {}
    kind = table.pop("rope_type", None) or table.pop("type", None)
    # DeepSeek's mscale pair cancels to 1 in transformers' YaRN and is ignored by vLLM's, which
    # would scale the served draft's attention differently from the trained one's; without it both
    # use the same factor.
    left_out = ("type", "rope_theta", "mscale", "mscale_all_dim")
    scaling = {
        "rope_type": kind,
        **{key: value for key, value in table.items() if key not in left_out},
    }
    return {"rope_theta": theta, "rope_scaling": None if kind in (None, "default") else scaling}
