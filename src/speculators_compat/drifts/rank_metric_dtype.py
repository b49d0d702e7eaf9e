"""The trainer of 0.8 adds up what is a float on the first process and an integer on the others."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute
from ._training import TRAINER, TRAINER_INIT


def _dist_that_reduces_floats(dist: Any) -> Any:
    """``torch.distributed`` as the trainer sees it, whose ``reduce`` sends the same type from every process."""

    class FloatDist:
        def __getattr__(self, name: str) -> Any:
            return getattr(dist, name)

        def reduce(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.is_floating_point():
                return dist.reduce(tensor, *args, **kwargs)
            same = tensor.float()
            done = dist.reduce(same, *args, **kwargs)
            tensor.copy_(same)
            return done

    return FloatDist()


DRIFT = Drift(
    id="rank_metric_dtype",
    title="Every process sends its metrics in the same type",
    symptom="terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    call_site="train/trainer.py:Trainer.train_epoch",
    speculators=">=0.8,<0.9",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/main/src/speculators/train/trainer.py",
    tripwire=TRAINER_INIT,
    sites=(substitute(f"{TRAINER}:dist", _dist_that_reduces_floats),),
)
