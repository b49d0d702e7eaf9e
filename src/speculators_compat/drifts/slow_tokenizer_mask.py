"""Slow tokenizers have no character offsets, so every conversation fails and is dropped."""

from __future__ import annotations

import inspect
import json
import logging
import sys
from typing import Any

from ..conversations import read_turns
from ..drift import Drift, UsageError, wrap
from ..masks import turn_mask
from ..rendering import Renderer
from ._preparation import Batch, Rows, around_batch, batch_tokenizer, column, tokenizer_of
from ._training import BUILD_DATASET, PREPROCESSING

log = logging.getLogger("speculators_compat")

TURN_TOKENS = ("<|im_assistant|>", "<|im_middle|>", "<|im_end|>")


def turn_ids(tokenizer: Any) -> tuple[int, int, int]:
    """Ids of the tokens that open, divide and end an assistant turn, by name.

    Raises:
        UsageError: The tokenizer does not know one of them.
    """
    ids = [tokenizer.convert_tokens_to_ids(name) for name in TURN_TOKENS]
    missing = [
        name
        for name, number in zip(TURN_TOKENS, ids, strict=True)
        # An unknown name comes back as None or as the id of another token, the unknown one.
        if number is None or tokenizer.convert_ids_to_tokens(number) != name
    ]
    if missing:
        raise UsageError(
            required=(f"A tokenizer without offsets must mark assistant turns with {', '.join(TURN_TOKENS)}."),
            found=f"{type(tokenizer).__name__} without {', '.join(missing)}",
            way_out="Use the model's fast tokenizer, or hand over rows that are already tokenised.",
        )
    return ids[0], ids[1], ids[2]


def needs_ids(tokenizer: Any) -> bool:
    """Whether a tokenizer cannot say which characters a token came from."""
    return not getattr(tokenizer, "is_fast", False)


def _batch(wrapped: Any, call: Batch) -> Any:
    """Upstream's contract: conversations in, ``input_ids`` and ``loss_mask`` (int64) out."""
    examples, tokenizer = call["examples"], batch_tokenizer(call)
    # No pattern: the template marks assistant tokens itself (0.4) and upstream needs no offsets.
    if not needs_ids(tokenizer) or call["assistant_pattern"] is None or not examples.get("conversations"):
        return wrapped(**call)
    renderer, marks, rows = Renderer(tokenizer), turn_ids(tokenizer), Rows(call)
    given = zip(examples["conversations"], column(examples, "tools"), strict=True)
    for index, (conversation, tools) in enumerate(given):
        try:
            turns = read_turns(conversation, call.get("turn_dropout", False))
            ids = renderer.token_ids(turns, json.loads(tools) if isinstance(tools, str) else tools)
        except Exception as error:
            log.warning("Conversation %d is dropped: %s: %s", index, type(error).__name__, error)
            continue
        problem = rows.add(ids, turn_mask(ids, *marks))
        if problem:
            log.warning("Conversation %d is dropped: %s", index, problem)
    return rows.results


def _check_tokenizer(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse in the caller's process what would fail in every process of ``datasets``."""
    bound = inspect.signature(wrapped).bind(*args, **kwargs)
    given = bound.arguments
    name = "tokenizer" if "tokenizer" in given else "processor"
    tokenizer = tokenizer_of(given[name])
    if needs_ids(tokenizer):
        # Rows of ids are text: a multimodal model's processor (0.6 and later) has no part in them.
        given[name] = tokenizer
        if "conversations" in given["dataset"].column_names:
            _check(tokenizer, given.get("assistant_pattern"))
    return wrapped(*bound.args, **bound.kwargs)


def _check(tokenizer: Any, pattern: Any) -> None:
    if pattern is not None:
        raise UsageError(
            required=("assistant_pattern needs a tokenizer with character offsets (a fast tokenizer)."),
            found=type(tokenizer).__name__,
            way_out=("Leave assistant_pattern out: assistant turns are then found by their tokens."),
        )
    support = getattr(sys.modules[PREPROCESSING], "_supports_assistant_mask", None)
    if support is None or not support(tokenizer):
        turn_ids(tokenizer)


DRIFT = Drift(
    id="slow_tokenizer_mask",
    title="Slow tokenizers get their loss mask from token ids",
    symptom="return_offset_mapping is not available when using Python tokenizers.",
    call_site="data_generation/preprocessing.py:_preprocess_batch",
    speculators=">=0.3.0,<0.8",
    since=None,
    until=None,
    upstream="https://github.com/huggingface/transformers/blob/v4.57.6/src/transformers/tokenization_utils.py#L793",
    tripwire=BUILD_DATASET,
    sites=(around_batch("slow_tokenizer_mask/2", _batch), wrap(BUILD_DATASET, _check_tokenizer)),
)
