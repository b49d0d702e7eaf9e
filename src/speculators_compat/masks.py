"""The loss mask of Kimi's chat format, from token ids alone.

A slow tokenizer gives no character offsets, so speculators' way of finding assistant text (a
regular expression over the rendered conversation) cannot be used. The ids themselves mark the
turns: ``<|im_assistant|>`` name ``<|im_middle|>`` content ``<|im_end|>``.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["turn_mask"]


def turn_mask(ids: Sequence[int], assistant_id: int, middle_id: int, end_id: int) -> list[int]:
    """Mark what the verifier generates: assistant turns, from after the middle token to the end.

    The end token is included because a draft must learn to propose it. The scan runs from left to
    right and never looks ahead, so the mask of a truncated conversation is the truncated mask of
    the whole one.

    Args:
        ids: Token ids of one rendered conversation.
        assistant_id: Id of the token that opens an assistant turn.
        middle_id: Id of the token between the role's name and the content.
        end_id: Id of the token that ends a turn.

    Returns:
        One 0 or 1 for every id.
    """
    mask = []
    in_header = in_content = False
    for token in ids:
        mask.append(int(in_content))
        if token == end_id:
            in_header = in_content = False
        elif in_content:
            continue
        elif token == assistant_id:
            in_header = True
        elif token == middle_id:
            in_content, in_header = in_header, False
    return mask
