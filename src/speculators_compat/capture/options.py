"""Options that the generator gains under the shim, and how they reach the wrapped constructors.

Upstream's ``__init__`` builds every config itself; the wrappers around those constructors read the options of the
generator under construction from a context variable, so that two generators never see each other's.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..drift import UsageError

__all__ = ["Options", "current", "using"]

OVERLONG = ("truncate", "error")


@dataclass(frozen=True)
class Options:
    """What a caller may ask of the generator beyond upstream's signature.

    Attributes:
        dtype: Passed to vLLM's ``ModelConfig``; "auto" follows the checkpoint, except that vLLM turns float32 into
            bfloat16.
        trust_remote_code: Reaches the config, the tokenizer and the model. The default is what upstream hard-wires for
            config and model, whose code has run by the time the tokenizer's would.
        limit_mm_per_prompt: Passed to ``ModelConfig``; by default every modality is 0, because prompts are token ids.
        overlong: "truncate" cuts a prompt to ``max_model_len - 1`` tokens as upstream does, counted and marked;
            "error" refuses it.
        max_num_batched_tokens: Token budget of one step; None for upstream's ``max(8192, max_model_len)``.
    """

    dtype: str = "auto"
    trust_remote_code: bool = True
    limit_mm_per_prompt: Mapping[str, int] | None = None
    overlong: str = "truncate"
    max_num_batched_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.overlong not in OVERLONG:
            raise UsageError(
                f"overlong must be one of {', '.join(OVERLONG)}.", repr(self.overlong), "Give one of these."
            )
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens < 1:
            raise UsageError(
                "max_num_batched_tokens must be a positive number of tokens.",
                repr(self.max_num_batched_tokens),
                "Leave it out for the default.",
            )


_DEFAULT = Options()
_current: contextvars.ContextVar[Options] = contextvars.ContextVar("speculators_compat_options", default=_DEFAULT)


def current() -> Options:
    """Options of the generator under construction in this context."""
    return _current.get()


@contextlib.contextmanager
def using(options: Options) -> Iterator[None]:
    """Make ``options`` current for the wrapped constructors."""
    token = _current.set(options)
    try:
        yield
    finally:
        _current.reset(token)


def split(kwargs: dict[str, Any], own: frozenset[str]) -> tuple[Options, dict[str, Any]]:
    """Take the options out of constructor arguments.

    Args:
        kwargs: Keyword arguments as the caller gave them.
        own: Names that upstream's constructor takes itself (left in ``kwargs`` too).

    Returns:
        The options and the arguments for upstream's constructor.
    """
    names = set(Options.__dataclass_fields__)
    options = Options(**{key: value for key, value in kwargs.items() if key in names})
    return options, {key: value for key, value in kwargs.items() if key not in names or key in own}
