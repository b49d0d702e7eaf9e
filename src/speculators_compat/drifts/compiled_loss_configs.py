"""torch 2.11 cannot compile two launches of Triton kernels that share one list of tunings, as the losses of 0.9.0 do.

Dynamo registers the list for mutation at every launch and refuses the second time. Two kernels share it, and every
draft step launches one.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

from ..drift import Drift, substitute
from ._training import TRAINER_INIT

FUSED = "speculators.losses.fused"


def _with_a_new_list(kernel: Any) -> Any:
    """The tuned kernel, which gives its tunings in a list of their own whenever it is asked for them."""

    def configs(self: Any) -> list[Any]:
        return list(self.__dict__["configs"])

    tuned = copy.copy(kernel)
    # A property comes before what the instance has under the same name.
    tuned.__class__ = type("Tuned", (type(kernel),), {"configs": property(configs)})
    return tuned


def _is_tracked_twice() -> bool:
    from torch._dynamo.variables import functions

    hopifier = getattr(functions, "DynamoTritonHOPifier", None)
    wrap = getattr(hopifier, "wrap_user_defined_obj", None)
    # ``_wrap`` goes past the look-up of what is tracked already.
    return wrap is not None and ")._wrap(" in inspect.getsource(wrap)


DRIFT = Drift(
    id="compiled_loss_configs",
    title="The compiled draft's losses can be traced by torch 2.11",
    symptom="AssertionError: ListVariable(length=21) is already tracked for mutation.",
    call_site="losses/fused.py:_FusedLoss",
    speculators=">=0.9",
    # Bound to torch: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_dynamo/variables/functions.py",
    tripwire=TRAINER_INIT,
    probe=_is_tracked_twice,
    sites=tuple(substitute(f"{FUSED}:loss_{way}_kernel", _with_a_new_list) for way in ("forward", "backward")),
)
