"""From 0.8 on the losses are Triton kernels, which nothing but an accelerator can run."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import TRAINER_INIT, has_accelerator

LOSSES = "speculators.losses.utils"
RENAMED = {"fused_nla_loss": "neg_log_acceptance_loss"}


def _plain(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def find(name: str) -> Any:
        from speculators.losses import eager

        return getattr(eager, RENAMED.get(name, name.removeprefix("fused_")))

    return find(*args, **kwargs)


def _without_accelerator() -> bool:
    # Where there is one, compiled code looks the kernels up, and a wrapper would stand in the compiler's way.
    return not has_accelerator()


DRIFT = Drift(
    id="fused_loss_without_accelerator",
    title="Losses are computed on a CPU too",
    symptom="RuntimeError: 0 active drivers ([]). There should only be one.",
    call_site="losses/utils.py:_fused_kernel",
    speculators=">=0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/main/src/speculators/losses/utils.py",
    tripwire=TRAINER_INIT,
    probe=_without_accelerator,
    sites=(wrap(f"{LOSSES}:_fused_kernel", _plain),),
)
