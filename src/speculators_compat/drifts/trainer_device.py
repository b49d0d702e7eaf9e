"""The trainer moves model and batches to an accelerator even where there is none."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import TRAINER, TRAINER_INIT, has_accelerator


class CpuRank(str):
    """A local rank whose device is the CPU.

    ``tensor.to(rank)`` takes it for the device's name; ``rank == 0``, which upstream uses to pick
    the process that reports, compares the number.
    """

    __slots__ = ("rank",)
    rank: int

    def __new__(cls, rank: int) -> CpuRank:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Name the CPU, remember the rank."""
        self = super().__new__(cls, "cpu")
        self.rank = int(rank)
        return self

    def __eq__(self, other: object) -> bool:
        return self.rank == other if isinstance(other, int) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Copies and pickles are made from the rank, not from the device's name."""
        return (self.rank,)


def _name_device(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The first step after __init__ has stored the rank, and before anything is moved.
    if not has_accelerator():
        instance.local_rank = CpuRank(instance.local_rank)
        if hasattr(instance, "device_type"):  # from 0.7 on, for autocast
            instance.device_type = "cpu"
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="trainer_device",
    title="The trainer stays on the CPU where there is no accelerator",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/trainer.py:Trainer.setup_model",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/trainer.py#L111",
    tripwire=TRAINER_INIT,
    sites=(wrap(f"{TRAINER}:Trainer.setup_trainer", _name_device),),
)
