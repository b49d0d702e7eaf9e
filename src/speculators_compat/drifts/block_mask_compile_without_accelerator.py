"""From 0.7 on the DFlash family compiles the making of its mask, which on a CPU takes a C++ compiler and a minute."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, substitute
from ._training import BLOCK_CORE, TRAINER_INIT, has_accelerator


def _uncompiled(compiled: Any) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask


def _without_accelerator() -> bool:
    return not has_accelerator()


DRIFT = Drift(
    id="block_mask_compile_without_accelerator",
    title="The DFlash family's mask is made uncompiled on a CPU",
    symptom="torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found",
    call_site="models/dflash/core.py:_compiled_create_block_mask",
    speculators=">=0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/models/dflash/core.py#L30",
    tripwire=TRAINER_INIT,
    probe=_without_accelerator,
    sites=(substitute(f"{BLOCK_CORE}:_compiled_create_block_mask", _uncompiled),),
)
