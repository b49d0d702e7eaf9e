"""The model types whose norms multiply by one plus the weight, against the installed transformers' own sources."""

import re
from pathlib import Path

import pytest

from speculators_compat.verifier import OFFSET_NORMS

pytestmark = pytest.mark.engine  # transformers is there

#: Encoder and decoder (no verifiers), only norms before the final one, or norms of an indexer.
NOT_FINAL = {"t5gemma2", "muse_glimmer", "muse_spark", "qwen4_exp"}


def test_every_model_that_offsets_is_known():
    import transformers

    models = Path(transformers.__file__).parent / "models"
    offsets = {
        path.parent.name
        for path in models.glob("*/modeling_*.py")
        if re.search(r"\(1(\.0)? \+ self\.weight", path.read_text(encoding="utf-8"))
    }
    assert "gemma3" in offsets, "transformers writes Gemma's norm in another way now"
    assert offsets - NOT_FINAL <= OFFSET_NORMS
