"""One cell of the matrix, besides exactness and faults: states of the drifts, and one run of the pipeline.

Every test here carries the marker ``cell``; ``pytest --cell`` runs them, the exactness and fault tests that carry it,
and the tests of the drifts that begin or end with the installed vLLM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from speculators_compat import versions
from speculators_compat.demo import prepare_demo
from speculators_compat.drifts import catalogue
from speculators_compat.pipeline.config import load_config
from speculators_compat.store import SampleStore, verify
from speculators_compat.testing import reference_hidden_states, relative_error
from tests.support import applies_here, kimi_runs, run_python

pytestmark = [pytest.mark.engine, pytest.mark.cell]

SAMPLES = 24


def test_every_drift_is_in_the_state_that_its_range_says():
    done = run_python(
        "import json\nfrom speculators_compat.doctor import facts\nprint('FACTS', json.dumps(facts.collect(load=True)))"
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FACTS ")), None)
    assert line, done.stderr[-3000:]
    facts = json.loads(line.removeprefix("FACTS "))
    assert facts["problems"] == {}
    # Whether it is recorded as passed is what this very run decides; that it has a row is known before.
    assert facts["pair"]["row"] is not None
    states = {drift["id"]: drift for drift in facts["drifts"]}
    wrong = {}
    for drift in catalogue():
        found = states[drift.id]
        bound = drift.since is not None or drift.until is not None
        allowed = {"applied", "waiting"} if applies_here(drift) else {"not needed", "waiting"}
        if not bound and drift.probe:
            allowed |= {"not needed"}
        if found["state"] not in allowed:
            wrong[drift.id] = (found["state"], found["reason"])
    assert wrong == {}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The demo's pipeline, float32 and small, on Kimi where this vLLM has it."""
    kind = "kimi_k25" if kimi_runs() else "llama"
    demo = prepare_demo(tmp_path_factory.mktemp("cell") / "demo", kind=kind)
    content = yaml.safe_load(demo.read_text())
    content["prepare"] |= {"max_samples": SAMPLES}
    content["extract"] |= {"dtype": "float32", "prompts_per_call": 7}
    config = demo.with_name("cell.yaml")
    config.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "speculators_compat", "pipeline", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return config


def test_the_pipeline_extracts_exact_states_and_its_draft_learns(run, record_property):
    config = load_config(run)
    summary = json.loads((config.output / "summary.json").read_text())
    assert summary["prepare"]["samples"] + sum(summary["prepare"]["dropped"].values()) == SAMPLES
    assert summary["extract"]["samples"] == summary["prepare"]["samples"] > SAMPLES // 2
    assert summary["vocab"]["coverage"] == 1.0
    assert summary["train"]["last_validation_loss"] < summary["train"]["first_validation_loss"]
    saved = json.loads(Path(summary["train"]["checkpoint"], "config.json").read_text())
    assert saved["eagle_aux_hidden_state_layer_ids"] == [3, 5, 6]
    assert verify(config.data_dir) == []
    store = SampleStore.open(config.data_dir)
    samples = [store.files.read(store.path(index)) for index in range(6)]
    prompts = [sample["input_ids"].tolist() for sample in samples]
    wanted = reference_hidden_states(config.model, prompts, summary["extract"]["layer_ids"])
    pairs = [
        pair
        for sample, states in zip(samples, wanted, strict=True)
        for pair in zip(sample["hidden_states"], states, strict=True)
    ]
    worst = max(relative_error(*pair) for pair in pairs)
    record_property("worst_error_of_the_pipeline", worst)
    assert worst <= 2e-5


def test_versions(record_property):
    for name in ("vllm", "speculators", "torch", "transformers"):
        found = versions.installed(name)
        assert found is not None
        record_property(f"version_{name}", found.version)
