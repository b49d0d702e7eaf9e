"""Stands in for a module that transformers 5 dropped (drift ``transformers_attention_masks``); imported as its own."""

from __future__ import annotations

from typing import Any


def _prepare_4d_causal_attention_mask(*args: Any, **kwargs: Any) -> Any:
    """Only EAGLE-1 drafts call it.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "EAGLE-1 drafts of speculators need transformers.modeling_attn_mask_utils, which the installed transformers no "
        "longer has. Train an EAGLE-3 draft, or install transformers<5.20."
    )
