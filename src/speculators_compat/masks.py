"""Loss masks from token ids alone.

A slow tokenizer gives no character offsets, so speculators' way of finding assistant text (a
regular expression over the rendered conversation) cannot be used. In Kimi's chat format the ids
themselves mark the turns: ``<|im_assistant|>`` name ``<|im_middle|>`` content ``<|im_end|>``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["through_turn_end", "turn_mask", "without_thinking"]


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


def without_thinking(ids: Sequence[int], mask: Sequence[int], open_id: int, close_id: int) -> list[int]:
    """Take thinking blocks, their two tokens included, out of a mask.

    A block may begin right before the trainable run, where the prompt opens it for the verifier (speculators 0.8 and
    later). One that is not closed ends with the trainable run it began in: a truncated sample, or an answer that was
    stopped in its thoughts.

    Args:
        ids: Token ids.
        mask: One 0 or 1 for every id.
        open_id: Id of ``<think>``.
        close_id: Id of ``</think>``.

    Returns:
        The new mask; nothing that was 0 becomes 1.
    """
    result = []
    thinking = opened = False
    for token, weight in zip(ids, mask, strict=True):
        thinking = bool(weight) and (thinking or opened or token == open_id)
        result.append(0 if thinking else int(weight))
        thinking = thinking and token != close_id
        opened = token == open_id
    return result


def through_turn_end(ids: Sequence[int], mask: Sequence[int], special_ids: Collection[int]) -> list[int]:
    """Let each trainable run go on through the special token that follows it, which ends the turn.

    Args:
        ids: Token ids.
        mask: One 0 or 1 for every id.
        special_ids: Ids of the tokenizer's special tokens.

    Returns:
        The new mask; nothing that was 1 becomes 0.
    """
    result = [int(weight) for weight in mask]
    for position in range(1, len(ids)):
        ended = mask[position - 1] and not mask[position]
        if ended and ids[position] in special_ids and ids[position - 1] not in special_ids:
            result[position] = 1
    return result
