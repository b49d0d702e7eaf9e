"""The model types whose norms multiply by one plus the weight, against the installed transformers' and vLLM's own
sources."""

import json
import re
from pathlib import Path

import pytest

from speculators_compat.verifier import OFFSET_NORMS, norm_offset, offsets_norm, text_config

pytestmark = pytest.mark.engine  # transformers is there

#: Encoder and decoder (no verifiers), only norms before the final one, or norms of an indexer.
NOT_FINAL = {"t5gemma2", "muse_glimmer", "muse_spark", "qwen4_exp", "t5_gemma_module"}


#: vLLM's file to the model types that it is for, where they are called otherwise.
CALLED = {"rnj1": "gemma3_text", "interns2_preview": "intern_s2_preview"}
VLLM_NORM = re.compile(r"self\.norm = \w*(?:Gemma|Qwen3_5|Qwen3Next)RMSNorm\(|self\.norm\.weight,\s*\{[^}]*offset=1\.0")


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
    named = {
        name
        for folder in offsets - NOT_FINAL
        for path in (models / folder).glob("configuration_*.py")
        for name in re.findall(r'^    model_type = "(\w+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {name for name in named - NOT_FINAL if "vision" not in name} <= OFFSET_NORMS


def test_every_model_that_offsets_in_vllm_is_known():
    import vllm

    root = Path(vllm.__file__).parent
    files = [*root.glob("model_executor/models/*.py"), *root.glob("models/*/*/model.py")]
    offsets = {
        path.parent.parent.name if path.stem == "model" else path.stem
        for path in files
        if VLLM_NORM.search(path.read_text(encoding="utf-8"))
    }
    assert "gemma3" in offsets, "vLLM writes Gemma's norm in another way now"
    types = {CALLED.get(name, name) for name in offsets if not name.endswith("_mtp")}
    assert {name for name in types if not any(known.startswith(name) for known in OFFSET_NORMS)} == set()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "nemotron_h", "layer_norm_epsilon": 1e-5}, False),  # another name for the norm's epsilon
        ({"model_type": "qwen3_5", "text_config": {"hidden_size": 8}}, True),
        ({"model_type": "minimax_m3_vl", "text_config": {"model_type": "minimax_m3_text"}}, True),
        ({"model_type": "wrapper", "text_config": {"model_type": "plamo3"}}, True),
        ({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}}, False),
    ],
)
def test_the_type_alone_decides(tmp_path, config, expected):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert offsets_norm(str(tmp_path)) is expected


def test_a_text_config_without_a_type_has_its_wrappers(tmp_path):
    """A wrapper that transformers does not know."""
    text = {"hidden_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-6}
    config = {"model_type": "interns2_mobius", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert norm_offset(text_config(str(tmp_path))) == 1.0
