"""Under FSDP the draft's layers are emptied, and only modules that can reset themselves get values again.

Llama's norms cannot: they start from whatever the memory held.
"""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute, wrap
from ._training import TRAINER, TRAINER_INIT

LAYERS = "layers."


def _keep_layers(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    resumed = instance.resume_from_checkpoint and instance.checkpointer.previous_epoch != -1
    if not instance.is_distributed or resumed:
        return wrapped(*args, **kwargs)
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    state = instance.model.state_dict()
    layers = {name: tensor.detach().cpu().clone() for name, tensor in state.items() if name.startswith(LAYERS)}
    wrapped(*args, **kwargs)
    # As speculators 0.5.0 does it: every rank gets rank 0's values, of the shards that it holds.
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(instance.model, layers, options=options)
    return None


def _no_module_is(original: Any) -> Any:
    """A class that nothing is an instance of: the trainer then empties and resets no layer."""

    class Nothing(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return False

    return Nothing("FSDPModule", (), {})


DRIFT = Drift(
    id="sharded_layer_weights",
    title="Sharded training starts from the weights that the draft was built with",
    symptom="no error: the norms of the draft's layers start from uninitialised memory",
    silent=True,
    call_site="train/trainer.py:Trainer.setup_model",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/train/trainer.py#L101",
    tripwire=TRAINER_INIT,
    sites=(wrap(f"{TRAINER}:Trainer.setup_model", _keep_layers), substitute(f"{TRAINER}:FSDPModule", _no_module_is)),
)
