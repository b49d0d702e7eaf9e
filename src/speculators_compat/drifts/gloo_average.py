"""Metrics are averaged over the processes by an operation that gloo does not know."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute
from ._training import TRAINER, TRAINER_INIT


def _dist_that_averages(dist: Any) -> Any:
    """``torch.distributed`` as the trainer sees it, whose ``reduce`` averages on gloo too."""

    class AveragingDist:
        def __getattr__(self, name: str) -> Any:
            return getattr(dist, name)

        def reduce(self, tensor: Any, dst: int, op: Any) -> Any:
            if op != dist.ReduceOp.AVG or dist.get_backend() != "gloo":
                return dist.reduce(tensor, dst=dst, op=op)
            done = dist.reduce(tensor, dst=dst, op=dist.ReduceOp.SUM)
            tensor /= dist.get_world_size()
            return done

    return AveragingDist()


DRIFT = Drift(
    id="gloo_average",
    title="Metrics are averaged over gloo too",
    symptom="RuntimeError: Cannot use ReduceOp.AVG with Gloo",
    call_site="train/trainer.py:Trainer.train_epoch",
    speculators=">=0.3.0,<0.6",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/trainer.py#L189",
    tripwire=TRAINER_INIT,
    sites=(substitute(f"{TRAINER}:dist", _dist_that_averages),),
)
