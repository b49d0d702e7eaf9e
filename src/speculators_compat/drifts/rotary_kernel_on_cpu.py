"""vLLM's CPU rotary kernel is wrong for interleaved rotary on a non-contiguous slice: states are wrong in silence."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._generator import WORKER_SETUP

EXTENSION = "speculators_compat.capture.extension"
TOKENS, HEADS, TOLERANCE = 5, 4, 1e-2


def on_cpu() -> bool:
    """Whether vLLM runs on its CPU backend in this process."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def mend(model: Any) -> list[str]:
    """Compare each rotary module's kernel with its own native path, and avoid the kernel where it is wrong.

    Args:
        model: The loaded model; only its own module objects are changed, never a class of vLLM's.

    Returns:
        One line for each kind of rotary module whose kernel is avoided.
    """
    avoided: dict[str, int] = {}
    for module in model.modules():
        broken = broken_layouts(module) if _is_rotary(module) else frozenset()
        if broken:
            module._forward_method = _avoiding(module, broken)
            line = f"{type(module).__name__}, {'interleaved' if not module.is_neox_style else 'neox'}, {_names(broken)}"
            avoided[line] = avoided.get(line, 0) + 1
    return [
        f"rotary_kernel_on_cpu: the CPU kernel of {count} rotary modules ({line}) is wrong; native path used there"
        for line, count in sorted(avoided.items())
    ]


def _names(layouts: frozenset[str]) -> str:
    return " and ".join(sorted(layouts))


def _is_rotary(module: Any) -> bool:
    return all(hasattr(module, name) for name in ("cos_sin_cache", "_forward_method", "rotary_dim", "is_neox_style"))


def _layout(query: Any) -> str:
    """How a model hands its query over: flat rows [tokens, heads * head], or heads [tokens, heads, head]."""
    return "rows" if query.dim() == 2 else "heads"


def _avoiding(module: Any, broken: frozenset[str]) -> Any:
    kernel = module._forward_method

    def forward(positions: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        path = module.forward_native if _layout(query) in broken else kernel
        return path(positions, query, *args, **kwargs)

    return forward


def broken_layouts(module: Any) -> frozenset[str]:
    """The layouts on which kernel and native path differ, both cut from wider memory as models cut them."""
    import torch

    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(1, TOKENS + 1)
    dtype, head = module.dtype, module.head_size
    rows = torch.randn(TOKENS, HEADS * head + head, generator=generator).to(dtype)
    heads = torch.randn(TOKENS, HEADS, head + head, generator=generator).to(dtype)
    cuts = ((rows[:, : HEADS * head], rows[:, HEADS * head :]), (heads[..., head:], heads[:, :1, :head]))
    return frozenset(_layout(query) for query, key in cuts if not _same(module, positions, query, key))


def _same(module: Any, positions: Any, query: Any, key: Any) -> bool:
    import torch

    try:
        expected = module.forward_native(positions, query.clone(), key.clone())
    except (RuntimeError, TypeError, AssertionError, IndexError):
        return True  # the native path does not take this layout, so no model feeds it to this module
    try:
        # The kernel works in place on strided memory: it must see the slice, not a copy that is contiguous again.
        found = module._forward_method(positions, _strided_copy(query), _strided_copy(key))
    except (RuntimeError, TypeError, AssertionError, IndexError):
        return False
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a.float(), b.float(), atol=TOLERANCE, rtol=TOLERANCE) for a, b in pairs)


def _strided_copy(tensor: Any) -> Any:
    copy = tensor.new_empty_strided(tensor.shape, tensor.stride())
    return copy.copy_(tensor)


def _check(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    return [*wrapped(*args, **kwargs), *mend(args[0])]


DRIFT = Drift(
    id="rotary_kernel_on_cpu",
    title="The CPU rotary kernel is checked, and avoided where it is wrong",
    symptom="no error: relative error 0.23 to 0.94 for every prompt of more than one token (Kimi-K2.5 without MLA)",
    call_site="vllm/model_executor/layers/rotary_embedding/base.py:forward_cpu",
    speculators=">=0.3.0",
    # Bound by no release: each loaded rotary module is asked.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.16.0/csrc/cpu/pos_encoding.cpp",
    process="worker",
    silent=True,
    probe=on_cpu,
    tripwire=WORKER_SETUP,
    sites=(wrap(f"{EXTENSION}:check_model", _check),),
)
