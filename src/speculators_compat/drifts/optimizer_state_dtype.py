"""Checkpoints round the optimizer's state to bfloat16: a resumed run goes on from other moments."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import CHECKPOINTER, CHECKPOINTER_INIT


def _keep_optimizer(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def convert(sd: Any, dtype: Any) -> Any:
        is_optimizer = isinstance(sd, dict) and sd.keys() == {"state", "param_groups"}
        return sd if is_optimizer else wrapped(sd, dtype)

    return convert(*args, **kwargs)


DRIFT = Drift(
    id="optimizer_state_dtype",
    title="Checkpoints keep the optimizer's state in its own dtype",
    symptom="no error: the optimizer's moments are rounded to bfloat16 and a resumed run differs",
    silent=True,
    call_site="train/checkpointer.py:convert_float_dtype",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/checkpointer.py#L164",
    tripwire=CHECKPOINTER_INIT,
    sites=(wrap(f"{CHECKPOINTER}:convert_float_dtype", _keep_optimizer),),
)
