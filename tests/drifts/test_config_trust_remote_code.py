import json
import shutil

import pytest

from tests.support import transformers_knows

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]


def test_remote_code_that_is_refused_does_not_run(run_generator, tiny_llama, tmp_path):
    """A known architecture whose folder brings a config class of its own, which leaves a mark when it runs."""
    mark, model = tmp_path / "ran", tmp_path / "llama"
    shutil.copytree(tiny_llama, model)
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_remote.RemoteConfig"}
    (model / "config.json").write_text(json.dumps(config))
    (model / "configuration_remote.py").write_text(
        f"from transformers import LlamaConfig\nopen({str(mark)!r}, 'w').close()\n"
        "class RemoteConfig(LlamaConfig):\n    pass\n"
    )
    done = run_generator(model=model, trust_remote_code=False)
    assert done.lengths == [3, 70, 1, 33], done.error
    assert not mark.exists()
    run_generator("config_trust_remote_code", model=model, trust_remote_code=False)
    assert mark.exists(), "without the drift it must run although it was refused, or this test shows nothing"


def test_a_model_that_needs_it_says_so(run_generator, tiny_kimi):
    known = transformers_knows("kimi_k25")
    done = run_generator(model=tiny_kimi, trust_remote_code=False)
    if known:
        assert done.lengths == [3, 70, 1, 33], done.error
    else:
        assert done.lengths is None
        assert "trust_remote_code" in done.error
