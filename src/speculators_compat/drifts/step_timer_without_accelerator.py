"""From 0.7 on the trainer waits for the accelerator before it reads the clock, also where there is none."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute
from ._training import TRAINER, TRAINER_INIT, has_accelerator


def _torch_that_waits_for_nothing(torch: Any) -> Any:
    """The module ``torch`` as the trainer sees it, which on a CPU has nothing to wait for."""

    class Accelerator:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch.accelerator, name)

        def synchronize(self, *args: Any) -> None:
            if has_accelerator():
                torch.accelerator.synchronize(*args)

    class Torch:
        accelerator = Accelerator()

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    return Torch()


DRIFT = Drift(
    id="step_timer_without_accelerator",
    title="Steps are timed on a CPU too",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/trainer.py:_StepTimer.mark",
    speculators=">=0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/trainer.py",
    tripwire=TRAINER_INIT,
    sites=(substitute(f"{TRAINER}:torch", _torch_that_waits_for_nothing),),
)
