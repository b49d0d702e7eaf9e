import pytest

from speculators_compat.drifts.command_verifier_config import DRIFT
from tests.drifts.text_configs import unknown_wrapper
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_a_draft_layer_with(tmp_path):
    path = unknown_wrapper(tmp_path / "kimi")
    with shim(without=DRIFT.id), pytest.raises(ValueError, match="contains custom code which must be executed"):
        layer(path)
    with shim():
        assert (layer(path).vocab_size, layer(path).hidden_size) == (768, 128)


def layer(path):
    from speculators.train.cli import create_transformer_layer_config

    return create_transformer_layer_config(str(path), 1, "llama", "silu", 2048, [])
