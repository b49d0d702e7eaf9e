"""Tiny models, prompts and reference states for tests, made on the spot without a download.

The folders are real checkpoints: vLLM, transformers and speculators load them as they load any
other. Importing this package loads none of these libraries; its functions do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from speculators_compat.testing.checkpoint import require
from speculators_compat.testing.int4 import make_int4
from speculators_compat.testing.kimi_k25 import make_kimi_k25
from speculators_compat.testing.language import conversation_rows, make_language
from speculators_compat.testing.prompts import make_conversations, random_prompts
from speculators_compat.testing.reference import reference_hidden_states, relative_error
from speculators_compat.testing.text_models import (
    make_gemma3,
    make_llama,
    make_qwen3,
    make_qwen3_moe,
)
from speculators_compat.testing.training import TrainingResult, train_verifier

__all__ = [
    "TINY_MODELS",
    "TrainingResult",
    "conversation_rows",
    "make_conversations",
    "make_gemma3",
    "make_int4",
    "make_kimi_k25",
    "make_language",
    "make_llama",
    "make_model",
    "make_qwen3",
    "make_qwen3_moe",
    "random_prompts",
    "reference_hidden_states",
    "relative_error",
    "train_verifier",
]

#: Kind of tiny model to the function that writes it.
TINY_MODELS: dict[str, Callable[..., Path]] = {
    "llama": make_llama,
    "qwen3": make_qwen3,
    "qwen3_moe": make_qwen3_moe,
    "gemma3": make_gemma3,
    "kimi_k25": make_kimi_k25,
}


def make_model(kind: str, directory: str | Path, **options: Any) -> Path:
    """Write the tiny model ``kind`` into ``directory``.

    Args:
        kind: A key of ``TINY_MODELS``.
        directory: New or empty folder for the checkpoint.
        **options: Passed to the model's own function.

    Returns:
        The folder.

    Raises:
        ValueError: If the kind is unknown, or a size or the folder does not fit.
        TypeError: If an option is unknown.
    """
    require(kind in TINY_MODELS, f"a kind out of {sorted(TINY_MODELS)}", kind, "choose one of them")
    return TINY_MODELS[kind](directory, **options)
