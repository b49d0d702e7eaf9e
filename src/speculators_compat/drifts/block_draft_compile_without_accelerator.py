"""speculators 0.5 and 0.6 always compile the DFlash draft; compiled, it cannot train on a CPU, or takes minutes to."""

from __future__ import annotations

from ..drift import Drift, wrap
from ._training import BLOCK_CORE, TRAINER_INIT
from .draft_compile_without_accelerator import eager_on_cpu

DRIFT = Drift(
    id="block_draft_compile_without_accelerator",
    title="The DFlash draft's forward runs uncompiled on a CPU",
    symptom="torch._inductor.exc.InductorError: IndexError: tuple index out of range",
    call_site="models/dflash/core.py:DFlashDraftModel.forward",
    speculators=">=0.5,<0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/models/dflash/core.py#L192",
    tripwire=TRAINER_INIT,
    sites=(wrap(f"{BLOCK_CORE}:DFlashDraftModel.forward", eager_on_cpu),),
)
