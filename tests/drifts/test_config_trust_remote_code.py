import json
import shutil

import pytest

pytestmark = pytest.mark.engine

REFUSED = "max_model_len=128, trust_remote_code=False"


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
    done = run_generator(model=model, arguments=REFUSED)
    assert "LENGTHS [3, 70, 1, 33]" in done.stdout, done.stderr[-3000:]
    assert not mark.exists()
    run_generator("config_trust_remote_code", model=model, arguments=REFUSED)
    assert mark.exists(), "without the drift it must run although it was refused, or this test shows nothing"


def test_a_model_that_needs_it_says_so(run_generator, tiny_kimi):
    done = run_generator(model=tiny_kimi, arguments=REFUSED)
    assert done.returncode != 0
    assert "trust_remote_code" in done.stderr
