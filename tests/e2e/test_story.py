"""The first symptom of the story, and its end: the same lines, without and with the import."""

from __future__ import annotations

import pytest

from tests.support import run_python

pytestmark = pytest.mark.engine

SCRIPT = """
{first}
if __name__ == "__main__":
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator
    generator = VllmHiddenStatesGenerator(model_path={model!r}, layer_ids=[1, 3], max_model_len=256)
    results = generator.generate([[1 + i % 7] * (1 + 5 * i) for i in range(40)])
    print("RESULTS", len(results), [r["input_ids"].shape[0] for r in results][:4], results[3]["hidden_states"][1].shape)
"""


def run(tmp_path, model, first):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(first=first, model=str(model)))
    import subprocess
    import sys

    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False)


def test_without_the_import_it_fails_as_reported(tmp_path, models):
    import importlib.metadata

    done = run(tmp_path, models("llama", num_hidden_layers=6), "")
    assert done.returncode != 0
    if importlib.metadata.version("speculators") == "0.3.0":
        assert "1 validation error for SchedulerConfig" in done.stderr
        assert "is_encoder_decoder" in done.stderr
        assert "Field required" in done.stderr
    else:  # 0.4 gets past the configs and asks a device that is not there for its memory
        assert "mem_get_info" in done.stderr
        assert "Found no NVIDIA driver" in done.stderr


def test_with_the_import_the_same_lines_return_states(tmp_path, models):
    done = run(tmp_path, models("llama", num_hidden_layers=6), "import speculators_compat")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "RESULTS 40 [1, 6, 11, 16] torch.Size([16, 128])" in done.stdout


def test_deactivate_restores_every_object_of_the_real_modules():
    done = run_python(
        """
import os, sys
os.environ["SPECULATORS_COMPAT"] = "0"  # first the originals
import speculators.data_generation.vllm_hidden_states_generator, speculators.train.trainer
import speculators.data_generation.preprocessing, speculators.models.eagle3.core
import speculators_compat.activation as activation
del os.environ["SPECULATORS_COMPAT"]
from speculators_compat.patching import MISSING
from speculators_compat.drifts import catalogue

def raw():
    found = {}
    for drift in catalogue():
        for site in drift.sites:
            owner = sys.modules.get(site.module)
            if owner is None:
                continue
            *parents, name = site.path.split(".")
            for parent in parents:  # None: a class of another release
                owner = getattr(owner, parent, None)
            found[site.target] = MISSING if owner is None else vars(owner).get(name, MISSING)
    return found

before = raw()
activation.activate()
applied = [o.drift.id for o in activation.outcomes() if o.state.value == "applied"]
changed = [target for target, value in raw().items() if value is not before[target]]
assert len(applied) > 8 and len(changed) > 8, (applied, changed)
activation.activate()
activation.deactivate()
after = raw()
assert all(after[target] is before[target] for target in before)
print("IDENTICAL", len(before))
"""
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "IDENTICAL" in done.stdout
