"""FlexAttention has no rule for autocast before torch 2.11, and the trainers from 0.7 on train under autocast."""

from __future__ import annotations

import functools
from typing import Any

from ..drift import Drift, Site
from ._training import TRAINER_INIT

ATTENTION = "speculators.models.attention:flex_attention"


def in_autocast_dtype(attend: Any) -> Any:
    """``flex_attention`` that takes its tensors in autocast's dtype, as torch from 2.11 on does.

    A plain function, since on an accelerator the compiler traces it: a wrapt wrapper would break the graph there.

    Args:
        attend: torch's ``flex_attention``.

    Returns:
        Takes and gives what ``attend`` does: query, key, value [batch, heads, tokens, head] of any floating dtypes,
        which may differ while autocast is on.
    """
    import torch

    @functools.wraps(attend)
    def call(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        device = query.device.type
        if not torch.is_autocast_enabled(device):
            return attend(query, key, value, *args, **kwargs)
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        # Off inside, as from torch 2.11 on: the unfused kernel keeps its scores in float32.
        with torch.autocast(device, enabled=False):
            return attend(query, key, value, *args, **kwargs)

    return call


def has_no_rule() -> bool:
    """Whether torch passes FlexAttention's tensors through autocast as they are."""
    from torch._C import DispatchKey
    from torch._higher_order_ops.flex_attention import flex_attention

    return DispatchKey.AutocastCPU not in flex_attention.py_kernels


DRIFT = Drift(
    id="flex_attention_autocast",
    title="Drafts whose attention mixes dtypes under autocast train on torch before 2.11",
    symptom="ValueError: Expected query, key, and value to have the same dtype",
    call_site="models/attention.py:flex_attention_forward",
    speculators=">=0.7",
    # Bound to torch, whose releases vLLM's follow: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_higher_order_ops/flex_attention.py",
    tripwire=TRAINER_INIT,
    probe=has_no_rule,
    sites=(Site(ATTENTION, in_autocast_dtype, "wrap"),),
)
