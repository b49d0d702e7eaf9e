"""vLLM 0.11.0 lets pip install transformers 5 beside it, and then fails on every tokenizer.

It imports, and reads the model's config; the tokenizer that it wraps has no ``all_special_tokens_extended`` any more
(seen with transformers 5.19). From 0.11.1 to 0.15.1 vLLM itself asks for ``transformers<5``.
"""

from __future__ import annotations

from typing import Any

from .. import versions
from ..drift import Drift, UsageError, wrap
from ._generator import GENERATOR


def _refusing(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = versions.installed("transformers")
    if found is not None and versions.matches(found.version, ">=5"):
        raise UsageError(
            "vLLM 0.11.0 needs transformers 4: it cannot wrap a tokenizer of transformers 5.",
            f"transformers {found.version}",
            "pip install 'transformers>=4.55.2,<5', or use a newer vLLM.",
        )
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="transformers_5_refused",
    title="transformers 5 is refused beside vLLM 0.11.0",
    symptom="AttributeError: TokenizersBackend has no attribute all_special_tokens_extended",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until="0.11.1",  # which asks for transformers<5
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/transformers_utils/tokenizer.py#L99",
    # Which transformers is there is asked at the call: no release of vLLM decides it.
    sites=(wrap(f"{GENERATOR}:ModelConfig", _refusing),),
)
