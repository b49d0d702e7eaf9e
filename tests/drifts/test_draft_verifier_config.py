import json

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.draft_verifier_config import DRIFT
from speculators_compat.testing import make_gemma3, make_kimi_k25, make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, untrained
from tests.drifts.text_configs import unknown_wrapper
from tests.support import newer_trainer, older_trainer, shim

pytestmark = pytest.mark.engine


@older_trainer
def test_symptom_without_and_no_remote_code_with(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    # Remote code that cannot be run without being noticed.
    (verifier / "configuration_kimi_k25.py").write_text("raise SystemExit('remote code was executed')\n")
    # transformers 5 has a class for Kimi-K2.5: another name stands for the next model that it does not know.
    described = json.loads((verifier / "config.json").read_text())
    (verifier / "config.json").write_text(json.dumps({**described, "model_type": "kimi_unknown"}))
    config = text_config(str(verifier))
    with (
        shim(without=DRIFT.id),
        pytest.raises(ValueError, match="contains custom code which must be executed"),
    ):
        draft_model(verifier, config)
    with shim():
        draft = draft_model(verifier, config)
    stated = json.loads((verifier / "config.json").read_text())["text_config"]
    assert draft.embed_tokens.weight.shape == (stated["vocab_size"], stated["hidden_size"])
    assert draft.embed_tokens.padding_idx == stated["pad_token_id"]


def test_known_type_keeps_its_own_class(tmp_path):
    assert type(text_config(str(make_llama(tmp_path / "llama")))).__name__ == "LlamaConfig"
    assert type(text_config(str(make_gemma3(tmp_path / "gemma")))).__name__ == "Gemma3TextConfig"


def test_known_wrapper_gives_its_text_config_with_defaults(tmp_path):
    text = {"model_type": "gemma3_text", "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    config = text_config(str(tmp_path))
    assert (config.model_type, config.hidden_size) == ("gemma3_text", 64)
    assert config.vocab_size > 0


def test_unknown_type_that_says_too_little_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "new", "hidden_size": 64}))
    with pytest.raises(UsageError, match="without vocab_size, rms_norm_eps"):
        text_config(str(tmp_path))


@newer_trainer
def test_symptom_without_and_loaded_weights_with(tmp_path):
    """From 0.5 on the draft is made first, then loads the verifier's weights."""
    verifier = unknown_wrapper(tmp_path / "kimi")
    with shim(without=DRIFT.id), pytest.raises(ValueError, match="contains custom code which must be executed"):
        untrained(verifier)
    with shim():
        assert not untrained(verifier).embed_tokens.weight.isnan().any()
