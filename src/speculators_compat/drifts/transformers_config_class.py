"""transformers 5 made its config a dataclass, whose generated methods take pydantic's place in speculators' configs."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from ..drift import Drift, substitute, wrap

CONFIG = "speculators.config"
CLASS = f"{CONFIG}:SpeculatorModelConfig"


def _own_init_only(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Class creation: a subclass without ``__init__`` keeps inheriting the one that initialises pydantic."""
    cls = instance
    has_own = "__init__" in vars(cls)
    wrapped(*args, **kwargs)
    if not has_own and "__init__" in vars(cls):
        del cls.__init__


def _without_class_variables(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    # transformers stores what it does not know as attributes; pydantic lets no instance hide a class variable.
    fixed = type(instance).__class_vars__
    wrapped(*args, **{name: value for name, value in kwargs.items() if name not in fixed})


def _no_validation(original: Any) -> Any:
    def validate(self: Any) -> None:
        """Called by transformers 5 on every new config; the name is pydantic's, whose fields are valid by now."""

    return validate


def _is_dataclass() -> bool:
    return dataclasses.is_dataclass(sys.modules[CONFIG].PretrainedConfig)


DRIFT = Drift(
    id="transformers_config_class",
    title="speculators' configs stay pydantic models where transformers' config is a dataclass",
    symptom="AttributeError: 'Eagle3SpeculatorConfig' object has no attribute '__pydantic_fields_set__'",
    call_site="config.py:SpeculatorModelConfig",
    speculators=">=0.3.0,<0.5",
    # Bound to transformers, whose releases vLLM's follow only loosely: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/pull/462",
    process="both",
    tripwire=f"{CLASS}.__init__",
    probe=_is_dataclass,
    sites=(
        wrap(f"{CLASS}.__init_subclass__", _own_init_only),
        wrap(f"{CLASS}.__init__", _without_class_variables),
        substitute(f"{CLASS}.validate", _no_validation),
    ),
)
