"""Which of a checkpoint's tensors belong to the language model."""

import pytest

from speculators_compat.drift import UsageError
from speculators_compat.verifier import resolve_names

pytestmark = pytest.mark.default_pair

ASKED = ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"]
SHORT = ["embed_tokens.weight", "lm_head.weight", "model.norm.weight"]


def keys(prefix: str, head: str) -> list[str]:
    layer = [f"{prefix}layers.{index}.mlp.up_proj.weight" for index in range(2)]
    return [f"{prefix}embed_tokens.weight", *layer, f"{prefix}norm.weight", head]


@pytest.mark.parametrize("asked", [ASKED, SHORT])
@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("model.", "lm_head.weight"),
        ("language_model.model.", "language_model.lm_head.weight"),
        ("language_model.", "language_model.lm_head.weight"),  # the NVFP4 checkpoint of Kimi-K2.5
        ("model.language_model.", "lm_head.weight"),
        ("", "lm_head.weight"),
    ],
)
def test_names_under_every_known_prefix(asked, prefix, head):
    found = resolve_names(asked, keys(prefix, head))
    assert list(found.values()) == [f"{prefix}embed_tokens.weight", head, f"{prefix}norm.weight"]


@pytest.mark.parametrize("asked", [ASKED, SHORT])
def test_other_parts_that_end_alike_are_not_taken(asked):
    others = [
        "vision_model.norm.weight",
        "vision_model.layers.0.norm.weight",
        "vision_tower.vision_model.norm.weight",
        "draft_lm_head.weight",
        "model.layers.2.embed_tokens.weight",  # DeepSeek's multi-token-prediction layer
        "model.layers.2.shared_head.norm.weight",
    ]
    own = keys("language_model.model.", "language_model.lm_head.weight")
    found = resolve_names(asked, others + own)
    assert list(found.values()) == [own[0], own[-1], own[-2]]


def test_tied_head_is_left_out():
    found = resolve_names(ASKED, [key for key in keys("model.", "lm_head.weight") if "lm_head" not in key])
    assert list(found) == [ASKED[0], ASKED[2]]


def test_exact_names_without_any_layer():
    assert resolve_names(ASKED[:2], ASKED[:2]) == {name: name for name in ASKED[:2]}


def test_two_language_models_are_refused():
    both = keys("thinker.model.", "thinker.lm_head.weight") + keys("talker.model.", "talker.lm_head.weight")
    with pytest.raises(UsageError, match=r"one language model.*'talker\.model\.', 'thinker\.model\.'"):
        resolve_names(ASKED, both)
