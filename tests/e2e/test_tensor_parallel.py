"""Tensor parallel 1, 2 and 8 give the same states, and 61 layers stay exact. Run by ``make tensor-parallel``.

Eight ranks on two cores take minutes, nearly all of it process start, so ``make test`` leaves this out. The figures are
written to ``benchmarks/results/tensor_parallel.json``.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from pathlib import Path

import pytest

from speculators_compat.testing import reference_hidden_states, relative_error
from tests.e2e.conftest import LENGTHS, start

pytestmark = [pytest.mark.engine, pytest.mark.slow]

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "tensor_parallel.json"
SIZES = (1, 2, 8)


def _states(model, layer_ids, size):
    """States of twelve prompts of very unequal length, and the seconds of start and run."""
    begun = time.monotonic()
    engine = start("kimi_k25", model, layer_ids, tensor_parallel_size=size)
    started = time.monotonic()
    try:
        prompts = engine.prompts(len(LENGTHS), seed=21)
        results = engine.generator.generate(prompts)
    finally:
        engine.generator.close()
    seconds = {"start": round(started - begun, 1), "run": round(time.monotonic() - started, 1)}
    return prompts, [result["hidden_states"] for result in results], seconds


def _worst(left, right):
    return max(relative_error(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


@pytest.fixture(scope="module")
def record():
    found = {
        "model": "kimi_k25",
        "dtype": "float32",
        "prompt_lengths": list(LENGTHS),
        "versions": {name: importlib.metadata.version(name) for name in ("speculators", "torch", "transformers")},
    }
    import vllm

    found["versions"]["vllm"] = vllm.__version__
    return found


def _save(record):
    """Written after each test: a run that is cut short keeps what it has measured."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def test_sizes_agree_with_each_other_and_with_transformers(models, record):
    model, layer_ids = models("kimi_k25", num_hidden_layers=6), [3, 0, 5, 1]
    runs = {size: _states(model, layer_ids, size) for size in SIZES}
    prompts = runs[1][0]
    reference = reference_hidden_states(model, prompts, layer_ids)
    record["six_layers"] = {
        "layer_ids": layer_ids,
        "seconds": {size: run[2] for size, run in runs.items()},
        "error_against_transformers": {size: _worst(run[1], reference) for size, run in runs.items()},
        "difference_from_tensor_parallel_1": {size: _worst(runs[size][1], runs[1][1]) for size in SIZES[1:]},
    }
    _save(record)
    assert max(record["six_layers"]["error_against_transformers"].values()) <= 2e-5
    assert max(record["six_layers"]["difference_from_tensor_parallel_1"].values()) <= 2e-5


@pytest.mark.parametrize("size", [8, 1])
def test_kimis_61_layers_stay_exact(models, record, size):
    model, layer_ids = models("kimi_k25", num_hidden_layers=61), [2, 30, 58, 60]
    prompts, states, seconds = _states(model, layer_ids, size)
    worst = _worst(states, reference_hidden_states(model, prompts, layer_ids))
    record.setdefault("sixty_one_layers", {"layer_ids": layer_ids})[size] = {
        "seconds": seconds,
        "error_against_transformers": worst,
    }
    _save(record)
    assert worst <= 1e-4
