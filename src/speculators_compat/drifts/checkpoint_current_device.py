"""speculators 0.4 and later resume onto the current accelerator, and fails where there is none."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import CHECKPOINTER, CHECKPOINTER_INIT


def _cpu(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    # load_state_dict copies to where the model is, so a copy on the CPU serves every device.
    return "cpu"


DRIFT = Drift(
    id="checkpoint_current_device",
    title="Checkpoints are loaded on the CPU and copied to the model's device (0.4 and later)",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/checkpointer.py:SingleGPUCheckpointer",
    speculators=">=0.4.0",
    since=None,
    until=None,
    upstream=("https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/utils/util.py#L13"),
    tripwire=CHECKPOINTER_INIT,
    sites=(wrap(f"{CHECKPOINTER}:get_current_device", _cpu),),
)
