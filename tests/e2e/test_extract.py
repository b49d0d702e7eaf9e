"""The extract step alone, from rows made by hand: interrupted, damaged, completed, exact; in every cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import warnings

import pytest

from speculators_compat.demo import prepare_demo
from speculators_compat.pipeline.config import load_config
from speculators_compat.store import SampleStore, verify
from speculators_compat.testing import reference_hidden_states, relative_error
from tests.e2e.test_pipeline import COMMAND, FILES, LIMIT_S, cli, edit, files, running_with, samples_among
from tests.rows import arrow_dataset, write_rows
from tests.support import interruptible, kimi_runs, speculators_is

pytestmark = [pytest.mark.engine, pytest.mark.cell]

SAMPLES = 40
LAYERS = [2, 4, 5, 7]


@pytest.fixture(scope="module")
def config_path(tmp_path_factory):
    """A tiny verifier, and rows of unequal lengths."""
    path = prepare_demo(tmp_path_factory.mktemp("extract") / "demo", kind="kimi_k25" if kimi_runs() else "llama")
    path = edit(path, "rows", extract={"dtype": "float32", "prompts_per_call": 7})
    write_rows(load_config(path), SAMPLES)
    return path


@pytest.fixture(scope="module")
def interrupted(config_path):
    """Exit code, names and files, and processes left, of an extraction that Ctrl-C stopped; then two files go bad."""
    config = load_config(config_path)
    slow = edit(config_path, "slow", extract={"prompts_per_call": 1})
    process = subprocess.Popen(
        [*COMMAND, "extract", str(slow)],
        env={**os.environ, "COMPAT_TEST_RUN": str(slow)},
        start_new_session=True,
        preexec_fn=interruptible,
    )
    deadline = time.monotonic() + LIMIT_S
    while len(FILES.found(config.data_dir)) < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    code = process.wait(LIMIT_S)
    while running_with(slow) and time.monotonic() < deadline:
        time.sleep(0.2)
    names = [path.name for path in config.data_dir.rglob("*")]
    cut, other, whole, *_ = FILES.found(config.data_dir).values()
    cut.write_bytes(cut.read_bytes()[:-1])
    other.write_bytes(whole.read_bytes())
    return code, names, files(config), running_with(slow), {cut.name, other.name}


@pytest.fixture(scope="module")
def completed(config_path, interrupted):
    """The configuration whose data are complete, and the report of the run that completed them."""
    done = cli("extract", config_path)
    assert done.returncode == 0, done.stderr[-4000:]
    config = load_config(config_path)
    return config, json.loads((config.steps_dir / "extract.json").read_text())


def test_interruption_leaves_complete_files_and_no_process(interrupted):
    code, names, _, left, _ = interrupted
    assert (code, left) == (130, [])
    assert not [name for name in names if name.startswith(".partial")]
    assert 0 < samples_among(names) < SAMPLES


def test_what_is_missing_or_damaged_is_extracted_and_nothing_else(completed, interrupted):
    config, report = completed
    _, _, before, _, damaged = interrupted
    after = files(config)
    assert report["samples"] == len(after) == SAMPLES
    assert report["extracted"] == SAMPLES - len(before) + len(damaged)
    assert {name for name in before if after[name] != before[name]} == damaged
    assert verify(config.data_dir) == []


def test_states_are_exact_and_those_of_their_row(completed, record_property):
    config, report = completed
    prompts = row_ids(config)
    store = SampleStore.open(config.data_dir)
    assert store.manifest.layer_ids == report["layer_ids"] == LAYERS
    assert report["vllm_layer_ids"] == [layer + 1 for layer in LAYERS]
    samples = [store.files.read(store.path(index)) for index in range(SAMPLES)]
    assert [sample["input_ids"].tolist() for sample in samples] == prompts
    worst = 0.0
    for sample, states in zip(samples, reference_hidden_states(config.model, prompts, LAYERS), strict=True):
        worst = max(worst, *(relative_error(*pair) for pair in zip(sample["hidden_states"], states, strict=True)))
    record_property("worst_error_of_the_extract_step", worst)
    assert worst <= 2e-5


def row_ids(config):
    """The rows' ids, read from the disk."""
    from datasets import load_from_disk

    return [row["input_ids"].tolist() for row in load_from_disk(str(config.prepared_dir / "rows"))]


def test_the_folder_says_what_it_holds(completed):
    config, _ = completed
    record = json.loads((config.data_dir / "data_config.json").read_text())
    assert record["hidden_states"]["layer_ids"] == LAYERS
    assert record["data"]["num_samples"] == SAMPLES
    pattern = record["format"]["file_pattern"].replace("{idx}", "3")
    assert config.data_dir / pattern == FILES.path(config.data_dir, 3)
    assert record["speculators_version"] == SampleStore.open(config.data_dir).manifest.versions["speculators"]


@pytest.mark.skipif(
    not speculators_is(">=0.5"),
    reason="its reader: https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py",
)
def test_upstreams_reader_takes_every_sample_without_a_word(completed):
    import torch

    config, _ = completed
    store = SampleStore.open(config.data_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # what upstream says of a sample that it leaves out
        rows = arrow_dataset(config.prepared_dir / "rows", "float32", config.data_dir / "hidden_states")
        for index in range(SAMPLES):
            *inputs, target = store.files.read(store.path(index))["hidden_states"]
            assert torch.equal(rows[index]["hidden_states"], torch.cat(inputs, dim=1))
            assert torch.equal(rows[index]["verifier_last_hidden_states"], target)
