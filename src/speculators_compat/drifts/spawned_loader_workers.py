"""From 0.7 on the trainer spawns its loaders, and in a spawned process nobody has imported the shim.

``multiprocessing`` imports a script again that is the main module, but not a package's ``__main__``.
"""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import TRAINER_INIT


def _with_the_shim(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("multiprocessing_context") == "spawn":
        from ..spawning import ShimmedSpawn

        kwargs = {**kwargs, "multiprocessing_context": ShimmedSpawn()}
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="spawned_loader_workers",
    title="The shim is active in the processes that load batches",
    symptom="no error: the processes that load batches run without a single fix",
    silent=True,
    call_site="train/dataloader.py:_setup_dataloader",
    speculators=">=0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/dataloader.py",
    tripwire=TRAINER_INIT,
    sites=(wrap("speculators.train.dataloader:DataLoader", _with_the_shim),),
)
