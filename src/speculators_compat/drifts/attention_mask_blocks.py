"""The mask of later draft steps is right only for batches of a multiple of 128 tokens."""

from __future__ import annotations

import logging
from typing import Any

from ..drift import Drift, wrap
from ..mask_blocks import round_up
from ._training import DATA, DATASET_INIT

log = logging.getLogger("speculators_compat")


def _whole_blocks(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def create(max_len: int) -> Any:
        padded = round_up(max_len)
        if padded != max_len:
            log.info(
                "Training batches are padded from %d to %d tokens (whole attention blocks).",
                max_len,
                padded,
            )
        return wrapped(padded)

    return create(*args, **kwargs)


DRIFT = Drift(
    id="attention_mask_blocks",
    title="Training batches are padded to whole attention blocks",
    symptom="no error: on a GPU, later draft steps attend to the wrong tokens",
    silent=True,
    call_site="models/eagle3/attention.py:extend_mask_for_draft_tokens",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/models/eagle3/attention.py#L49",
    tripwire=DATASET_INIT,
    sites=(wrap(f"{DATA}:create_collate_fn", _whole_blocks),),
)
