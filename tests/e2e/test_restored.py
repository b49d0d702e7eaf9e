"""One script written for speculators 0.3.0 runs unmodified on every release, the removed generator included."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from speculators_compat.testing import make_model, random_prompts, reference_hidden_states, relative_error
from tests.e2e.test_exactness import TOLERANCE

pytestmark = [pytest.mark.engine, pytest.mark.cell]

#: As users wrote it for 0.3.0: one line of setup per name, the generator, samples and their record on disk.
SCRIPT = """
import json, sys
from pathlib import Path

import torch
from speculators.data_generation import VllmHiddenStatesGenerator
from speculators.data_generation.config_generator import DataGenerationConfig
from speculators.data_generation.logging_utils import PipelineLogger
from speculators.data_generation.preprocessing import load_and_preprocess_dataset, load_raw_dataset
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

def main():
    settings = json.loads(Path(sys.argv[1]).read_text())
    out = Path(sys.argv[2])
    out.mkdir()
    generator = VllmHiddenStatesGenerator(**settings["generator"])
    results = []
    for start in range(0, len(settings["prompts"]), 8):
        results += generator.generate(settings["prompts"][start : start + 8])
    for index, result in enumerate(results):
        torch.save({**result, "loss_mask": torch.ones_like(result["input_ids"])}, out / f"data_{index}.pt")
    record = DataGenerationConfig.from_generator(
        generator=generator, train_data_path="conversations.jsonl", seq_length=generator.vllm_config.model_config
        .max_model_len, cache_dir=str(out), num_samples=len(results), max_samples=None, seed=3)
    (out / "data_config.json").write_text(json.dumps(record.to_dict()))

if __name__ == "__main__":
    main()
"""
LAYERS = [2, 0, 5, 3]


@pytest.mark.parametrize(("way", "ranks"), [("exec", 1), ("import", 2)])
def test_a_script_of_0_3_0_gives_exact_states_and_its_record(way, ranks, tmp_path, record_property):
    """As it is, by ``speculators-compat exec``; or with the one import in front, which spawned workers repeat."""
    import torch

    folder = make_model("llama", tmp_path / "model", num_hidden_layers=6)
    prompts = random_prompts(200, [1, 70, 15, 17, 2, 64, 33, 16, 40, 1, 59, 3], seed=4)
    options = {"layer_ids": LAYERS, "max_model_len": 80, "tensor_parallel_size": ranks, "dtype": "float32"}
    settings, script, out = tmp_path / "settings.json", tmp_path / "extract.py", tmp_path / "data"
    settings.write_text(json.dumps({"generator": {"model_path": str(folder), **options}, "prompts": prompts}))
    script.write_text(SCRIPT if way == "exec" else f"import speculators_compat\n{SCRIPT}")
    command = [sys.executable, *(["-m", "speculators_compat", "exec"] if way == "exec" else [])]
    command += [str(script), str(settings), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]

    worst = 0.0
    for index, expected in enumerate(reference_hidden_states(folder, prompts, LAYERS)):
        sample = torch.load(out / f"data_{index}.pt", weights_only=True)
        assert sample["input_ids"].tolist() == prompts[index]
        assert len(sample["hidden_states"]) == len(LAYERS)
        pairs = zip(sample["hidden_states"], expected, strict=True)
        worst = max(worst, *(relative_error(found, wanted) for found, wanted in pairs))
    assert worst <= TOLERANCE
    record_property(f"worst_error_of_the_old_script_tp{ranks}", worst)

    record = json.loads((out / "data_config.json").read_text())
    assert record["hidden_states"]["layer_ids"] == LAYERS
    assert record["model"]["target_model_path"] == str(folder)
    assert record["model"]["tensor_parallel_size"] == ranks
    assert record["data"]["num_samples"] == len(prompts)
    assert record["format"]["schema"]["hidden_states"]["num_tensors"] == len(LAYERS)
    assert set(record["reproducibility"]["package_versions"]) == {"torch", "vllm", "transformers", "speculators"}
