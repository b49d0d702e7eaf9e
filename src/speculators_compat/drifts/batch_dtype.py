"""Batches widen the states to float32: 0.94 GB for 8192 tokens of Kimi-K2.5, times workers, prefetch and ranks."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import DATASET_INIT, DRAFT_MODEL

POSITION = 4  # of hidden_states_dtype
STATES = ("hidden_states", "verifier_last_hidden_states")


def _as_stored(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapped(*args, **kwargs)
    if "hidden_states_dtype" in kwargs or len(args) > POSITION or not instance.data:
        return
    import torch

    first = torch.load(instance.data[0], mmap=True, weights_only=True, map_location="cpu")
    states = first.get("hidden_states")
    if isinstance(states, list) and states:
        instance.hidden_states_dtype = states[0].dtype


def _in_the_draft_dtype(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # Here and not in the loader: one batch is on the device at a time, dozens are in host memory.
    dtype = instance.fc.weight.dtype
    args = tuple(value.to(dtype) if index == 0 else value for index, value in enumerate(args))
    cast = {name: kwargs[name].to(dtype) for name in STATES if kwargs.get(name) is not None}
    return wrapped(*args, **{**kwargs, **cast})


DRIFT = Drift(
    id="batch_dtype",
    title="Batches keep the dtype in which the states were stored",
    symptom="no error: host memory for 8 training processes at width 7168 is 360 GB",
    silent=True,
    call_site="train/data.py:Eagle3SampleFileDataset.__init__",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/data.py#L139",
    tripwire=DATASET_INIT,
    sites=(wrap(DATASET_INIT, _as_stored), wrap(f"{DRAFT_MODEL}.forward", _in_the_draft_dtype)),
)
