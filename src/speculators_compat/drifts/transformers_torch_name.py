"""transformers 5.4 annotates its config class with ``torch.dtype`` and imports torch for type checkers only.

speculators' config class is a pydantic model as well, and pydantic resolves the annotations of every base in the module
that wrote them.
"""

from __future__ import annotations

import sys
from typing import Any

from ..drift import Drift, supply

MODULE = "transformers.configuration_utils"


def _unresolvable() -> bool:
    module = sys.modules[MODULE]
    annotations = vars(module.PretrainedConfig).get("__annotations__", {})
    return "torch." in str(annotations.get("dtype")) and not hasattr(module, "torch")


def _torch(missing: Any) -> Any:
    import torch

    return torch


DRIFT = Drift(
    id="transformers_torch_name",
    title="pydantic can resolve the annotations of transformers' config class",
    symptom="pydantic.errors.PydanticUndefinedAnnotation: name 'torch' is not defined",
    call_site="config.py:reload_and_populate_configs",
    speculators=">=0.3.0,<0.5",
    # Bound to transformers, whose releases vLLM's follow only loosely: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/pull/352",
    process="both",
    probe=_unresolvable,
    sites=(supply(f"{MODULE}:torch", _torch),),
)
