"""Training as speculators 0.5 and later do it, beside whichever of them is installed: states come from transformers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import yaml

from speculators_compat.drift import UsageError
from speculators_compat.layers import to_vllm_layer_ids
from speculators_compat.pipeline import train, train_options, train_settings
from speculators_compat.pipeline.curves import read_curves
from speculators_compat.pipeline.train_metrics import METRICS, validations
from speculators_compat.pipeline.train_options import algorithms
from speculators_compat.pipeline.trainers import has_schema
from speculators_compat.verifier import text_config
from tests.support import interruptible, newer_trainer, shim
from tests.training_runs import LAYER_IDS, make_run, make_verifier, options_of, with_training

pytestmark = [pytest.mark.engine, newer_trainer]

LAYER_FIELDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("newest")
    with shim():
        return make_run(folder / "base", make_verifier(folder / "kimi"))


def step(config, *, expect: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """The train step as a user starts it."""
    done = subprocess.run(
        command(config), env={**os.environ, **env}, capture_output=True, text=True, timeout=500, check=False
    )
    assert expect is None or done.returncode == expect, done.stderr[-3000:]
    return done


def command(config) -> list[str]:
    path = Path(config.output).with_suffix(".yaml")
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    return [sys.executable, "-m", "speculators_compat", "train", str(path)]


def report(config) -> dict:
    return json.loads((config.steps_dir / "train.json").read_text())


def train_and_check(prepared, output, algorithm):
    """Train a draft of this kind; its loss falls, and its checkpoint says what it is.

    Args:
        prepared: Run with states and a vocabulary.
        output: New folder.
        algorithm: Skips where the installed trainer does not offer it.

    Returns:
        The step's report.
    """
    with shim():
        if algorithm not in algorithms():
            pytest.skip(f"the installed trainer offers {algorithms()}")
        fields = {"algorithm": algorithm, "options": options_of(algorithm), "epochs": 3}
        config = with_training(prepared, output, **fields)
        train.run(config)
    found = report(config)
    assert found["last_validation_loss"] < found["first_validation_loss"]
    assert found["last_loss"] < found["first_loss"]
    assert set(validations(config)) == {0, 1, 2}
    saved = json.loads((Path(found["checkpoint"]) / "config.json").read_text())
    named = [saved[name] for name in LAYER_FIELDS if name in saved]
    assert named == [to_vllm_layer_ids(LAYER_IDS[:-1])]
    assert saved["speculators_config"]["algorithm"] == algorithm
    assert saved["speculators_config"]["verifier"] == {
        "name_or_path": config.verifier,
        "architectures": ["KimiK25ForConditionalGeneration"],
    }
    layer = saved["transformer_layer_config"]
    assert (layer["head_dim"], layer["intermediate_size"], layer["num_hidden_layers"]) == (32, 128, 1)
    curves = read_curves(config)
    assert len(curves.train) == found["steps"]
    assert len(curves.validation_series("loss")) == 3
    return found


@pytest.mark.parametrize(
    "algorithm", ["eagle3", pytest.param("dflash", marks=pytest.mark.cell), "peagle", "dspark", "xpress"]
)
def test_the_loss_falls_and_the_checkpoint_names_its_layers(prepared, tmp_path, algorithm, record_property):
    found = train_and_check(prepared, tmp_path / "run", algorithm)
    record_property("losses", [found["first_validation_loss"], found["last_validation_loss"]])


def test_a_draft_of_the_whole_vocabulary_learns_too(prepared, tmp_path):
    """dflash2 refuses a smaller one:
    https://github.com/vllm-project/speculators/blob/v0.9.0/src/speculators/models/dflash2/core.py"""
    verifier = Path(prepared.verifier)
    with shim():
        whole = make_run(tmp_path / "whole", verifier, text_config(str(verifier)).vocab_size)
    train_and_check(whole, tmp_path / "run", "dflash2")


def test_the_report_says_what_the_release_chose_itself(prepared, tmp_path):
    with shim():
        config = with_training(prepared, tmp_path / "run", epochs=1, options={"log_freq": 2})
        train.run(config)
    found = report(config)
    assert found["split"] == {"train": [0, 17], "validation": [18, 23]}
    assert found["trainer"]["log_freq"] == 2
    assert "norm_before_fc" in found["trainer"]  # True from 0.7 on, without a word
    assert not {"lr", "epochs", "mask_token_id", "save_path"} & found["trainer"].keys()


@pytest.mark.cell
def test_the_trainers_own_data_set_takes_every_sample(prepared):
    from tests.rows import arrow_dataset

    with shim(), warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, states = prepared.prepared_dir / "rows", prepared.data_dir / "hidden_states"
        data = arrow_dataset(rows, "bfloat16", states)
        samples = [data[index] for index in range(len(data))]
    assert len(samples) == 24
    assert all(sample["hidden_states"].shape[1] == 3 * 128 for sample in samples)


def test_a_run_goes_on_where_it_was_stopped(prepared, tmp_path):
    """Interrupted, the trainer saves what it has and returns: the step must neither count as done nor lose an epoch."""
    config = with_training(prepared, tmp_path / "run", epochs=400)
    process = subprocess.Popen(command(config), preexec_fn=interruptible, stderr=subprocess.PIPE, text=True)
    metrics = config.output / METRICS
    deadline = time.monotonic() + 200
    while '"val"' not in (metrics.read_text() if metrics.exists() else ""):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 130, stderr[-3000:]
    assert not (config.steps_dir / "train.json").exists()
    done = len(train.complete_epochs(config))
    assert 1 <= done < 400
    with shim():
        raw = config.model_dump(mode="json", exclude_unset=True)
        longer = type(config).model_validate({**raw, "train": {**raw["train"], "epochs": done + 2}})
        train.run(longer)
    assert report(longer)["checkpoint"].endswith(f"/{done + 1}")
    # The epoch that was cut short is in the curve once, whole.
    curves = read_curves(longer)
    assert len(curves.train) == (done + 2) * len([epoch for epoch in curves.epochs if epoch == 0])
    seconds = report(longer)["seconds"]
    with shim():
        train.run(longer)
    assert report(longer)["seconds"] == seconds


def test_two_processes_train_one_draft(prepared, tmp_path):
    config = with_training(prepared, tmp_path / "run", num_processes=2, train_ratio=0.6)
    step(config)
    found = report(config)
    assert found["last_validation_loss"] < found["first_validation_loss"]
    alone = with_training(prepared, tmp_path / "alone", train_ratio=0.6)
    step(alone)
    assert found["steps"] < report(alone)["steps"]


def test_loaders_of_their_own(prepared, tmp_path):
    config = with_training(prepared, tmp_path / "run", epochs=1, num_workers=1, prefetch_factor=1)
    step(config)
    alone = with_training(prepared, tmp_path / "alone", epochs=1)
    step(alone)
    assert report(config)["first_loss"] == pytest.approx(report(alone)["first_loss"], rel=0.05)


def test_converted_samples_train_the_same_draft(prepared, tmp_path):
    """Into the form of 0.4 and back: every weight of the draft is the same, bit for bit."""
    import torch
    from safetensors.torch import load_file

    from speculators_compat.exchange import export, import_

    native, converted = (with_training(prepared, tmp_path / name, epochs=1) for name in ("native", "converted"))
    with shim():
        import_(native.data_dir, tmp_path / "old", rows=native.prepared_dir / "rows")
        export(tmp_path / "old", tmp_path / "new")
    states = converted.data_dir / "hidden_states"
    shutil.rmtree(states)
    shutil.copytree(tmp_path / "new" / "hidden_states", states)
    step(native)
    step(converted)
    first, second = (load_file(Path(report(run)["checkpoint"]) / "model.safetensors") for run in (native, converted))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"algorithm": "mtp"}, "train.algorithm must be one that speculators"),
        ({"options": {"lr": 1}}, "lr (the field train.lr)"),
        ({"options": {"no_such": 1}}, "Known: "),
        ({"train_ratio": 0.99}, "at least one batch"),
    ],
)
def test_bad_input_is_one_message(prepared, tmp_path, fields, message):
    config = with_training(prepared, tmp_path / "run", **{"num_processes": 2, **fields})
    done = step(config, expect=2)
    assert message in " ".join(done.stderr.split())
    assert not config.checkpoint_dir.exists()


@pytest.mark.skipif(not has_schema(), reason="the optimizer is chosen from speculators 0.7 on")
@pytest.mark.parametrize("options", [{}, {"optimizer": "muon"}])
def test_a_torch_without_muon_takes_adamw(prepared, tmp_path, monkeypatch, options):
    """As torch 2.8, beside vLLM 0.11."""
    for module in (train_options, train_settings):
        monkeypatch.setattr(module, "has_muon", lambda: False)
    config = with_training(prepared, tmp_path / "run", epochs=1, options=options)
    with shim():
        if not options:
            train.run(config)
            assert report(config)["trainer"]["optimizer"] == "adamw"
            return
        with pytest.raises(UsageError, match=r"optimizer: muon beside torch \d"):
            train.run(config)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dataset_fingerprint", "0" * 64, "other rows, or other masks, than they were extracted from"),
        ("form", "pt", "form: 'pt' there, 'safetensors' now"),
    ],
)
def test_samples_of_other_rows_or_of_another_form_are_refused(prepared, tmp_path, name, value, message):
    config = with_training(prepared, tmp_path / "run")
    manifest = config.data_dir / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), name: value}))
    done = step(config, expect=2)
    assert message in " ".join(done.stderr.split())
    assert not config.checkpoint_dir.exists()
