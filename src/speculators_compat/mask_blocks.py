"""The block size of the draft's attention mask, for whoever chooses a batch length."""

from __future__ import annotations

__all__ = ["MASK_BLOCK", "round_up"]

MASK_BLOCK = 128
"""Block size of flex attention's masks (torch's ``_DEFAULT_SPARSE_BLOCK_SIZE``), which Eagle3DraftModel extends."""


def round_up(tokens: int) -> int:
    """Round a sequence length up to whole blocks of the attention mask.

    ``extend_mask_for_draft_tokens`` (speculators ``models/eagle3/attention.py``) assumes whole
    blocks; any other length attends to wrong positions from the second step on, and nothing fails.
    """
    return -(-tokens // MASK_BLOCK) * MASK_BLOCK
