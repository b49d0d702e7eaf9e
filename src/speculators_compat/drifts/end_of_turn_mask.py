"""Masks found by a regular expression stop before the token that ends a turn: the draft never learns to propose it."""

from __future__ import annotations

from typing import Any

from ..drift import Drift
from ..masks import through_turn_end
from ._preparation import Batch, around_batch, batch_tokenizer
from ._training import BUILD_DATASET


def _through_end(wrapped: Any, call: Batch) -> Any:
    results = wrapped(**call)
    if call["assistant_pattern"] is None:  # the template marks what the assistant writes itself
        return results
    import torch

    special = special_ids(batch_tokenizer(call))
    for row, (ids, mask) in enumerate(zip(results["input_ids"], results["loss_mask"], strict=True)):
        extended = through_turn_end(ids.tolist(), mask.tolist(), special)
        # Releases from 0.5 on have truth values here, and numbers everywhere else.
        results["loss_mask"][row] = torch.tensor(extended, dtype=torch.long)
    return results


def special_ids(tokenizer: Any) -> set[int]:
    """Ids of a tokenizer's special tokens, those without a role of their own included."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}


DRIFT = Drift(
    id="end_of_turn_mask",
    title="The token that ends an assistant's turn is trained on",
    symptom="no error: the end-of-turn token is never counted or trained, and may be missing from the draft vocabulary",
    silent=True,
    call_site="data_generation/preprocessing.py:_create_loss_mask_from_offsets",
    speculators=">=0.3.0,<0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L149",
    tripwire=BUILD_DATASET,
    # Inside tokenised_rows and slow_tokenizer_mask, whose masks are right: drifts apply in the order of their ids.
    sites=(around_batch("end_of_turn_mask/2", _through_end),),
)
