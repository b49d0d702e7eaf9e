"""Prompts as they come in: checked before the engine is touched, cut as upstream cuts them but never in silence."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..drift import UsageError

__all__ = ["Prompt", "check_layer_ids", "read_prompt", "read_prompts"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a call.

    Attributes:
        index: Position in the caller's batch.
        token_ids: Tokens that will run.
        truncated: Number of tokens cut off at the end; 0 for a whole prompt.
    """

    index: int
    token_ids: list[int]
    truncated: int


def read_prompts(token_ids: Any, *, vocab_size: int, max_tokens: int, overlong: str) -> list[Prompt]:
    """Turn a caller's batch into prompts.

    Args:
        token_ids: List of lists of int, list of 1-D integer tensors, or one 2-D integer tensor.
        vocab_size: Number of ids that the verifier's embedding knows.
        max_tokens: Longest prompt that fits (``max_model_len - 1``: vLLM keeps one position for the sampled token).
        overlong: "truncate" or "error".

    Raises:
        UsageError: Nothing to do, or something that is not a token id.
    """
    rows = _rows(token_ids)
    if not rows:
        raise UsageError("token_ids cannot be empty.", "an empty batch", "Give at least one prompt.")
    return [
        read_prompt(index, row, vocab_size=vocab_size, max_tokens=max_tokens, overlong=overlong)
        for index, row in enumerate(rows)
    ]


def check_layer_ids(layer_ids: Any) -> list[int] | None:
    """Check what does not depend on the model; upstream checks the bounds when it has read the config.

    Args:
        layer_ids: Whole numbers (NumPy's too), in any order; None for upstream's default.

    Returns:
        The ids as a list of int.

    Raises:
        UsageError: No layer, a layer named twice, or something that is not a whole number.
    """
    if layer_ids is None:
        return None
    try:
        given = list(layer_ids)
        ids = [operator.index(i) for i in given if not isinstance(i, bool)]
    except TypeError:
        given, ids = [layer_ids], []
    if not ids or len(ids) != len(given):
        raise UsageError(
            "layer_ids must be a non-empty list of whole numbers.", repr(layer_ids), "For example [2, 30, 58, 60]."
        )
    repeated = sorted({i for i in ids if ids.count(i) > 1})
    if repeated:
        raise UsageError(
            "layer_ids must name each layer once.",
            f"{ids}, repeating {repeated}",
            "Name each layer once (the default needs a verifier of 7 layers or more).",
        )
    return ids


def _rows(token_ids: Any) -> Sequence[Any]:
    import torch

    if isinstance(token_ids, torch.Tensor):
        if token_ids.dim() != 2:
            raise UsageError(
                "A tensor of token ids must have two dimensions [prompts, tokens].",
                f"shape {tuple(token_ids.shape)}",
                "Wrap a single prompt: tensor[None].",
            )
        return list(token_ids)
    if isinstance(token_ids, (str, bytes)) or not isinstance(token_ids, Sequence):
        raise UsageError(
            "token_ids must be a list of prompts, each a list of token ids, or a 2-D integer tensor.",
            type(token_ids).__name__,
            "Tokenize text first.",
        )
    return token_ids


def read_prompt(index: int, row: Any, *, vocab_size: int, max_tokens: int, overlong: str) -> Prompt:
    """Turn one list of ints or 1-D integer tensor into a prompt, as :func:`read_prompts` does."""
    ids = _integers(index, row)
    if not ids:
        raise UsageError("Every prompt must have at least one token.", f"prompt {index} is empty", "Leave it out.")
    low, high = min(ids), max(ids)
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        raise UsageError(
            f"Token ids must lie in [0, {vocab_size - 1}], the verifier's vocabulary.",
            f"{bad} in prompt {index} at position {ids.index(bad)}",
            "Tokenize with the verifier's own tokenizer.",
        )
    excess = max(0, len(ids) - max_tokens)
    if excess and overlong == "error":
        raise UsageError(
            f"A prompt may have at most {max_tokens} tokens (max_model_len - 1).",
            f"prompt {index} with {len(ids)}",
            "Raise max_model_len, shorten the prompt, or pass overlong='truncate'.",
        )
    return Prompt(index, ids[:max_tokens], excess)


def _integers(index: int, row: Any) -> list[int]:
    import torch

    try:
        tensor = torch.as_tensor(row)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UsageError("Token ids must be whole numbers.", f"prompt {index}: {error}", "Pass ints.") from error
    if tensor.numel() == 0:
        return []
    if tensor.dim() != 1 or tensor.dtype.is_floating_point or tensor.dtype in (torch.bool, torch.complex64):
        raise UsageError(
            "A prompt must be a flat list of whole numbers.",
            f"prompt {index} of type {tensor.dtype} and shape {tuple(tensor.shape)}",
            "Pass ints.",
        )
    ids: list[int] = tensor.tolist()
    return ids
