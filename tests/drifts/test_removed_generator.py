"""The removed modules are there again, lazily and only where they were removed. Real engines: tests/e2e."""

from __future__ import annotations

import json
import shutil

import pytest

from speculators_compat import restored, versions
from speculators_compat.drifts import catalogue
from speculators_compat.drifts.removed_generator import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside, stub
from tests.support import has_call_site

FILES = {
    "data_generation/preprocessing.py": "",
    "data_generation/logging_utils.py": "class PipelineLogger:\n    def __init__(self, name): pass\n    info = print\n",
    "utils/util.py": "def get_device_name(index): return 'NO ACCELERATOR'\n"
    "def is_npu_available(): return False\ndef mem_get_info(): return 0, 0\n",
}
VLLM = (
    "vllm",
    "vllm.config",
    "vllm.sampling_params",
    "vllm.v1",
    "vllm.v1.core",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.sched",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.request",
    "vllm.v1.structured_output",
)


@pytest.fixture
def newest(tmp_path):
    stub(tmp_path, "torch", "transformers", *VLLM)
    return fake_speculators(tmp_path, "0.9.0", FILES)


def test_the_symptom_without_it(newest):
    done = run_beside(
        newest,
        "from speculators.data_generation import VllmHiddenStatesGenerator",
        SPECULATORS_COMPAT_DISABLE=DRIFT.id,
    )
    assert DRIFT.symptom in done.stderr


def test_the_class_and_its_modules_are_found_under_their_old_names(newest):
    code = """
from speculators.data_generation import VllmHiddenStatesGenerator
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator as same
from speculators.data_generation import config_generator
from speculators.data_generation.config_generator import DataGenerationConfig, PackageVersions
assert VllmHiddenStatesGenerator is same
print("FROM", VllmHiddenStatesGenerator.__module__)
"""
    done = run_beside(newest, code)
    assert "FROM speculators.data_generation.vllm_hidden_states_generator" in done.stdout, done.stderr
    assert not list((newest / "speculators").rglob("*generator*.py")), "nothing is written into the package"


def test_preparing_data_imports_no_vllm(newest):
    code = "from speculators.data_generation import preprocessing\nimport sys\nprint('LOADED', 'vllm' in sys.modules)"
    assert "LOADED False" in run_beside(newest, code).stdout


@pytest.mark.skipif(
    versions.installed("vllm") is not None, reason="the unit environment has none; here vLLM is installed"
)
def test_without_vllm_the_error_is_of_vllm(newest):
    shutil.rmtree(newest / "vllm")
    done = run_beside(newest, "from speculators.data_generation import VllmHiddenStatesGenerator")
    assert "ModuleNotFoundError: No module named 'vllm'" in done.stderr


def test_deactivation_gives_the_package_back(newest):
    code = """
import speculators.data_generation as package
assert "__getattr__" in vars(package)
speculators_compat.deactivate()
assert "__getattr__" not in vars(package) and len(package.__path__) == 1
try:
    from speculators.data_generation import VllmHiddenStatesGenerator
except ImportError as error:
    print("GONE", error)
"""
    assert "GONE cannot import name" in run_beside(newest, code).stdout


def test_a_release_that_has_its_own_keeps_it(tmp_path):
    own = {**FILES, "data_generation/vllm_hidden_states_generator.py": "class VllmHiddenStatesGenerator: own = True\n"}
    folder = fake_speculators(tmp_path, "0.4.0.1", own)
    code = """
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator
import speculators.data_generation as package
assert len(package.__path__) == 1
print("OWN", VllmHiddenStatesGenerator.own)
"""
    assert "OWN True" in run_beside(folder, code).stdout


def test_the_record_has_the_fields_of_0_4(newest):
    """Field by field what 0.4.0.1 writes; tests/e2e compares the real thing."""
    code = """
import json, types
import speculators.data_generation.config_generator as module
module.AutoConfig = types.SimpleNamespace(
    from_pretrained=lambda path, **_: types.SimpleNamespace(text_config=types.SimpleNamespace(hidden_size=64)))
cache = types.SimpleNamespace(gpu_memory_utilization=0.5)
generator = types.SimpleNamespace(model_path="m", tensor_parallel_size=2, layer_ids=[2, 5],
    vllm_config=types.SimpleNamespace(cache_config=cache))
found = module.DataGenerationConfig.from_generator(generator, "d.jsonl", 128, "cache", 7, seed=3)
print("RECORD", json.dumps(found.to_dict()))
"""
    done = run_beside(newest, code, SPECULATORS_COMPAT_DISABLE="device_name_without_accelerator")
    line = next((line for line in done.stdout.splitlines() if line.startswith("RECORD ")), None)
    assert line, done.stderr
    record = json.loads(line.removeprefix("RECORD "))
    assert record["version"] == "2.0"
    assert record["speculators_version"] == "0.9.0"
    assert record["model"] == {
        "target_model_path": "m",
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.5,
        "hidden_size": 64,
    }
    assert record["data"] == {
        "train_data_path": "d.jsonl",
        "seq_length": 128,
        "max_samples": None,
        "num_samples": 7,
        "seed": 3,
        "chat_template_note": "Uses tokenizer's built-in chat template",
    }
    assert record["generation"] == {"cache_dir": "cache"}
    assert record["reproducibility"]["gpu"] == "CPU ONLY"
    assert record["format"]["schema"]["hidden_states"]["shape"] == "list of [seq_len, 64]"
    assert record["format"]["schema"]["hidden_states"]["num_tensors"] == 2


def test_a_generator_that_outlives_the_interpreter_ends_quietly(newest):
    """The names of modules are gone by then."""
    code = """
from speculators.data_generation import vllm_hidden_states_generator as module
class Executor:
    def shutdown(self): print("SHUT DOWN")
generator = object.__new__(module.VllmHiddenStatesGenerator)
generator.executor = Executor()
for name in [name for name in vars(module) if not name.startswith("__")]:
    if name != "VllmHiddenStatesGenerator":
        setattr(module, name, None)
del generator
"""
    done = run_beside(newest, code)
    assert "SHUT DOWN" in done.stdout, done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_restored_file_counts_as_the_release_that_it_is_restored_from():
    assert restored.release_at("data_generation/custom_worker.py:x", "0.9.0") == restored.RELEASE
    assert restored.release_at("data_generation/custom_worker.py:x", "0.3.0") == "0.3.0"
    assert restored.release_at("train/data.py:list_files", "0.9.0") == "0.9.0"


def test_the_drifts_of_the_generator_hold_on_every_release(monkeypatch):
    """What 0.4.0.1 needs, the restored file needs: none of its drifts ends with the release that dropped the file."""
    files = [drift for drift in catalogue() if drift.call_site.startswith(restored.FILES)]
    assert len(files) > 20
    monkeypatch.setattr("tests.support.versions.installed", lambda name: type("I", (), {"version": "0.9.0"}))
    newest = {drift.id for drift in files if has_call_site(drift)}
    monkeypatch.setattr("tests.support.versions.installed", lambda name: type("I", (), {"version": "0.4.0.1"}))
    assert newest == {drift.id for drift in files if has_call_site(drift)}
