"""Upstream's script gives the sampler the rank within the node: with several nodes, all train on the same data."""

from __future__ import annotations

import logging
import os
from typing import Any

from ..drift import Drift, wrap
from ._training import TRAINER_INIT

log = logging.getLogger("speculators_compat")


def _of_all_nodes(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def create(batch_max_length: int, lengths: Any, num_replicas: int, rank: int, *rest: Any, **options: Any) -> None:
        wrapped(batch_max_length, lengths, num_replicas, _global_rank(num_replicas, rank), *rest, **options)

    create(*args, **kwargs)


def _global_rank(num_replicas: int, rank: int) -> int:
    world, local = (int(os.environ.get(name, "-1")) for name in ("WORLD_SIZE", "LOCAL_RANK"))
    # Only the mistake is mended: a sampler over all processes that was given torchrun's local rank.
    if num_replicas != world or rank != local:
        return rank
    found = int(os.environ["RANK"])
    if found != rank:
        log.info("The sampler was given local rank %d and uses rank %d of %d.", rank, found, world)
    return found


DRIFT = Drift(
    id="sampler_global_rank",
    title="Processes of different nodes train on different samples",
    symptom="no error: every node repeats the first node's samples",
    silent=True,
    call_site="scripts/train.py:setup_dataloader",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/scripts/train.py#L73",
    tripwire=TRAINER_INIT,
    sites=(
        wrap("speculators.train.distributed_batch_sampler:MultipackDistributedBatchSamplerV2.__init__", _of_all_nodes),
    ),
)
