"""What is known of classes outside the two packages: enough to say that an attribute is *not* theirs."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MODULE_CLASS", "has_init", "members"]

MODULE_CLASS = "torch.nn.Module"

# Only these are imported to be asked: the standard library's, without side effects.
STANDARD = ("abc", "builtins", "collections", "enum", "threading", "typing")
# Public and documented names: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html
TORCH_MODULE = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook",
    "register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "training", "type", "xpu", "zero_grad",
})  # fmt: skip
ALIASES = {
    "torch.nn.modules.module.Module": MODULE_CLASS,
    "typing_extensions.Protocol": "typing.Protocol",
    "typing_extensions.Self": "typing.Self",
    "typing_extensions.NamedTuple": "typing.NamedTuple",
}
# Constructors that come from annotated fields, and those that take nothing of their own.
FIELD_BASED = {"typing.NamedTuple", "pydantic.BaseModel", "pydantic.main.BaseModel", "msgspec.Struct"}
MEMBERS = {
    MODULE_CLASS: TORCH_MODULE,
    "msgspec.Struct": frozenset(),
    "typing.Protocol": frozenset(),
    "typing.Generic": frozenset(),
    "typing.NamedTuple": frozenset({"_asdict", "_fields", "_make", "_replace", "count", "index"}),
}
WITHOUT_INIT = {"abc.ABC", "builtins.object", "typing.Generic", "typing.Protocol", MODULE_CLASS}


def canonical(name: str) -> str:
    """One spelling of a dotted name."""
    return ALIASES.get(name, name)


def members(name: str) -> frozenset[str] | None:
    """Attribute names of an external class, without those that every object has; None if not known."""
    name = canonical(name)
    if name in MEMBERS:
        return MEMBERS[name]
    module, _, attribute = name.rpartition(".")
    if module not in STANDARD:
        return None
    found: Any = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        return None
    # dir() of an enumeration leaves out what its members have: name and value.
    return frozenset(dir(found)).union(*(vars(base) for base in getattr(found, "__mro__", ())))


def has_init(name: str) -> bool:
    """Whether an external class may bring a constructor of its own."""
    return canonical(name) not in WITHOUT_INIT
