"""torch 2.11 refuses the backward pass of FlexAttention on a CPU, where the draft then cannot be trained."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import DRAFT_INIT, has_accelerator

ATTENTION = "speculators.models.eagle3.attention"


def dense_on_cpu(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wrapper of ``flex_attention``: :func:`dense_attention` for tensors on a CPU."""
    query, key, value = args
    if query.device.type != "cpu":
        return wrapped(*args, **kwargs)
    return dense_attention(
        query, key, value, kwargs["block_mask"].mask_mod, scale=kwargs.get("scale"), enable_gqa=kwargs["enable_gqa"]
    )


def dense_attention(query: Any, key: Any, value: Any, mask_mod: Any, **options: Any) -> Any:
    """FlexAttention without blocks: the whole mask is laid out.

    Args:
        query: [batch, heads, tokens, head], any floating dtype.
        key: [batch, heads, keys, head].
        value: As ``key``.
        mask_mod: FlexAttention's mask function, true where a query sees a key.
        **options: ``scale`` and ``enable_gqa`` of torch's scaled_dot_product_attention.

    Returns:
        [batch, heads, tokens, head]; zero where a query sees nothing, as FlexAttention has it.
    """
    import torch
    from torch.nn.attention.flex_attention import create_mask

    mask = create_mask(mask_mod, 1, 1, query.shape[-2], key.shape[-2], device="cpu")
    # A query that sees nothing has no softmax: it sees all for a moment, and its row is set to zero.
    blind = ~mask.any(dim=-1, keepdim=True)
    attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask | blind, **options)
    return attended.masked_fill(blind, 0.0)


def is_refused() -> bool:
    """Whether a draft can only be trained on a CPU, where torch refuses to."""
    if has_accelerator():
        return False  # training runs there, compiled, and a wrapper would stand in the compiler's way
    import torch
    from torch.nn.attention import flex_attention

    one = torch.zeros(1, 1, 1, 16, requires_grad=True)
    # The check alone where it can be had: a whole call takes seconds.
    check = getattr(flex_attention, "_validate_device", flex_attention.flex_attention)
    try:
        check(one, one, one)
    except NotImplementedError:
        return True
    return False


DRIFT = Drift(
    id="flex_attention_backward",
    title="The draft's attention has a backward pass on a CPU",
    symptom="NotImplementedError: FlexAttention does not support backward on CPU.",
    call_site="models/eagle3/attention.py:flex_attention_forward",
    speculators=">=0.3.0,<0.5",
    # Bound to torch, whose releases vLLM's follow: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/pytorch/pytorch/blob/v2.11.0/torch/nn/attention/flex_attention.py",
    tripwire=DRAFT_INIT,
    probe=is_refused,
    sites=(wrap(f"{ATTENTION}:flex_attention", dense_on_cpu),),
)
