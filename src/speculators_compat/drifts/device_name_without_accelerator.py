"""0.4 asks for the accelerator's name where torch was built for CUDA and no GPU is present."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import has_accelerator

CONFIG_GENERATOR = "speculators.data_generation.config_generator"
ABSENT = "NO ACCELERATOR"  # what the function itself answers for a torch built without any


def _name_if_there_is_one(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped(*args, **kwargs) if has_accelerator() else ABSENT


DRIFT = Drift(
    id="device_name_without_accelerator",
    title="data_config.json can be made where there is no accelerator",
    symptom="RuntimeError: Found no NVIDIA driver on your system.",
    call_site="data_generation/config_generator.py:_get_gpu_info",
    speculators=">=0.4,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/utils/util.py#L22",
    tripwire=f"{CONFIG_GENERATOR}:DataGenerationConfig.from_generator",
    sites=(wrap(f"{CONFIG_GENERATOR}:get_device_name", _name_if_there_is_one),),
)
