import pytest

from speculators_compat.drifts.verifier_tensor_names import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.testing.checkpoint import read_tensors, write_tensors
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

ASKED = ["embed_tokens.weight", "lm_head.weight", "model.norm.weight"]


@pytest.fixture
def wrapped(tmp_path):
    """A verifier under a wrapper, beside a vision tower whose names are shorter and come first."""
    import torch

    path = make_llama(tmp_path / "llama")
    text = read_tensors(path)
    vision = {
        "a_model.norm.weight": torch.full_like(text["model.norm.weight"], 9.0),
        "a.embed_tokens.weight": torch.full_like(text["model.embed_tokens.weight"], 9.0),
        "a.lm_head.weight": torch.full_like(text["lm_head.weight"], 9.0),
    }
    write_tensors(path, vision | {f"language_model.{name}": value for name, value in text.items()}, shards=1)
    return path, text


def test_a_vision_tower_without_and_the_language_model_with(wrapped):
    from speculators.utils import loading

    path, text = wrapped
    with shim(without=DRIFT.id):
        found = loading.load_model_layers(ASKED, str(path))
        assert all((tensor == 9).all() for tensor in found.values())
    with shim():
        found = loading.load_model_layers(ASKED, str(path))
    assert list(found) == ASKED
    assert found["model.norm.weight"].equal(text["model.norm.weight"])
    assert found["lm_head.weight"].equal(text["lm_head.weight"])


def test_what_is_unknown_is_left_to_upstream(tmp_path):
    from speculators.utils import loading

    path = make_llama(tmp_path / "llama")
    with shim():
        found = loading.load_model_layers([*ASKED, "layers.0.mlp.up_proj.weight"], str(path))
    assert found["layers.0.mlp.up_proj.weight"].equal(read_tensors(path)["model.layers.0.mlp.up_proj.weight"])
