"""Resuming loads the checkpoint to ``cuda:0``, whatever device the model is on."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute, wrap
from ._training import CHECKPOINTER, CHECKPOINTER_INIT


def _tensors_on_cpu(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def load(path: Any, device: Any) -> Any:
        return wrapped(path, "cpu")

    return load(*args, **kwargs)


def _torch_that_loads_on_cpu(torch: Any) -> Any:
    """The module ``torch`` as the checkpointer sees it, whose ``load`` maps to the CPU.

    ``load_state_dict`` copies parameters and optimizer state to where the model is, so the device
    of the loaded copy does not matter, and the step counters stay where torch keeps them.
    """

    class TorchOnCpu:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def load(self, *args: Any, **kwargs: Any) -> Any:
            return torch.load(*args, **{**kwargs, "map_location": "cpu"})

    return TorchOnCpu()


DRIFT = Drift(
    id="checkpoint_device",
    title="Checkpoints are loaded on the CPU and copied to the model's device",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="train/checkpointer.py:SingleGPUCheckpointer",
    speculators=">=0.3.0,<0.4",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/checkpointer.py#L131",
    tripwire=CHECKPOINTER_INIT,
    sites=(
        wrap(f"{CHECKPOINTER}:load_safetensors_state_dict", _tensors_on_cpu),
        substitute(f"{CHECKPOINTER}:torch", _torch_that_loads_on_cpu),
    ),
)
