"""speculators 0.3.0 always compiles the draft; compiled, it cannot train on a CPU."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import DRAFT_INIT, DRAFT_MODEL


def eager_on_cpu(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wrapper of a draft's compiled ``forward``: what was compiled, where the draft is on a CPU."""
    if instance.fc.weight.device.type != "cpu":
        return wrapped(*args, **kwargs)
    # torch.compile keeps the function it was given; bound methods pass attribute look-ups on to it.
    return wrapped._torchdynamo_orig_callable(instance, *args, **kwargs)


DRIFT = Drift(
    id="draft_compile_without_accelerator",
    title="The draft's forward runs uncompiled on a CPU",
    symptom="torch._inductor.exc.InductorError: IndexError: tuple index out of range",
    call_site="models/eagle3/core.py:Eagle3DraftModel.forward",
    speculators=">=0.3.0,<0.4",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/models/eagle3/core.py#L282",
    tripwire=DRAFT_INIT,
    sites=(wrap(f"{DRAFT_MODEL}.forward", eager_on_cpu),),
)
