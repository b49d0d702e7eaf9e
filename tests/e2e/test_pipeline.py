"""The whole run on a real engine: interrupted, completed, repaired, refused, trained on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from speculators_compat.demo import prepare_demo
from speculators_compat.pipeline.config import RunConfig, load_config
from speculators_compat.sample_files import FORMS, installed_form
from speculators_compat.store import verify
from speculators_compat.testing import reference_hidden_states, relative_error
from tests.support import interruptible

pytestmark = pytest.mark.engine

COMMAND = [sys.executable, "-m", "speculators_compat"]
LIMIT_S = 900
FILES = FORMS[installed_form()]


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def edit(config: Path, name: str, **changes: dict) -> Path:
    """A copy of the configuration beside it, with changed sections."""
    content = yaml.safe_load(config.read_text())
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    path = config.with_name(f"{name}.yaml")
    path.write_text(yaml.safe_dump(content))
    return path


def running_with(folder: Path) -> list[str]:
    """Command lines of processes that were started for this folder."""
    entries = Path("/proc").glob("[0-9]*/environ")
    return [name for name in (name_if_marked(entry, folder) for entry in entries) if name]


def name_if_marked(entry: Path, folder: Path) -> str:
    try:
        marked = f"COMPAT_TEST_RUN={folder}".encode() in entry.read_bytes()
        return entry.with_name("cmdline").read_text().replace("\0", " ") if marked else ""
    except OSError:  # it has ended, or is another user's
        return ""


def files(config: RunConfig) -> dict[str, tuple[int, int]]:
    """Every file of the data folder by inode and modification time: equal means untouched."""
    stats = {path.name: path.stat() for path in FILES.found(config.data_dir).values()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def samples_among(names: list[str]) -> int:
    """How many of these files are samples."""
    return sum(FILES.index(name) is not None for name in names)


@pytest.fixture(scope="module")
def config_path(tmp_path_factory) -> Path:
    """The demo, float32 and small."""
    path = prepare_demo(tmp_path_factory.mktemp("pipeline") / "demo")
    return edit(
        path,
        "small",
        prepare={"max_samples": 24, "num_proc": 2},
        extract={"dtype": "float32", "prompts_per_call": 7, "sort_by_length": True},
        train={"epochs": 2},
    )


@pytest.fixture(scope="module")
def interrupted(config_path) -> tuple[int, list[str], list[str]]:
    """Exit code, files, and processes left, of an extraction that Ctrl-C stopped."""
    assert cli("prepare", config_path).returncode == 0
    config = load_config(config_path)
    slow = edit(config_path, "slow", extract={"prompts_per_call": 1})
    process = subprocess.Popen(
        [*COMMAND, "extract", str(slow)],
        env={**os.environ, "COMPAT_TEST_RUN": str(slow)},
        start_new_session=True,
        preexec_fn=interruptible,
    )
    deadline = time.monotonic() + LIMIT_S
    while not FILES.found(config.data_dir):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    code = process.wait(LIMIT_S)
    while running_with(slow) and time.monotonic() < deadline:
        time.sleep(0.2)
    return code, [path.name for path in config.data_dir.rglob("*")], running_with(slow)


@pytest.fixture(scope="module")
def summary(config_path, interrupted) -> dict:
    """Summary of the run that completes the interrupted one."""
    result = cli("pipeline", config_path)
    assert result.returncode == 0, result.stderr[-4000:]
    content = json.loads((load_config(config_path).output / "summary.json").read_text())
    return {**content, "shown": result.stdout}


def test_interruption_leaves_complete_files_and_no_process(config_path, interrupted):
    code, names, left = interrupted
    assert code == 130
    assert left == []
    assert not [name for name in names if name.startswith(".partial")]
    assert 0 < samples_among(names) < 24


def test_summary_accounts_for_every_conversation(summary, interrupted):
    before = samples_among(interrupted[1])
    assert summary["prepare"]["conversations"] == 24
    assert summary["prepare"]["samples"] + sum(summary["prepare"]["dropped"].values()) == 24
    assert summary["extract"]["samples"] == summary["prepare"]["samples"]
    assert summary["extract"]["extracted"] == summary["prepare"]["samples"] - before
    assert summary["vocab"]["coverage"] == 1.0
    assert summary["train"]["last_validation_loss"] < summary["train"]["first_validation_loss"]
    assert summary["train"]["last_loss"] < summary["train"]["first_loss"]
    assert Path(summary["train"]["checkpoint"], "model.safetensors").is_file()
    for words in ("tokens extracted", "vocabulary coverage", "training loss", "checkpoint"):
        assert words in summary["shown"]


def test_every_sample_is_its_own_rows(config_path, summary):
    """Ids, mask and states of file i belong to row i, whatever order they were extracted in."""
    from datasets import load_from_disk

    config = load_config(config_path)
    assert verify(config.data_dir) == []
    rows = load_from_disk(str(config.prepared_dir / "rows")).with_format("torch")
    samples = [FILES.read(path) for path in FILES.found(config.data_dir).values()]
    for row, sample in zip(rows, samples, strict=True):
        assert sample["input_ids"].tolist() == row["input_ids"].tolist()
        if "loss_mask" in sample:  # from 0.5 on it is the row's alone
            assert sample["loss_mask"].tolist() == row["loss_mask"].tolist()
    assert len({len(row["input_ids"]) for row in rows}) > 3, "equal lengths cannot show a wrong order"
    layer_ids = summary["extract"]["layer_ids"]
    expected = reference_hidden_states(
        config.model, [sample["input_ids"].tolist() for sample in samples[:6]], layer_ids
    )
    for sample, states in zip(samples, expected, strict=False):
        for found, wanted in zip(sample["hidden_states"], states, strict=True):
            assert relative_error(found, wanted) < 2e-5


def test_trained_config_says_what_vllm_must_serve(summary):
    saved = json.loads(Path(summary["train"]["checkpoint"], "config.json").read_text())
    assert summary["extract"]["layer_ids"] == [2, 4, 5, 7]
    assert saved["eagle_aux_hidden_state_layer_ids"] == [3, 5, 6]
    verifier = saved["speculators_config"]["verifier"]
    assert verifier["architectures"] == ["KimiK25ForConditionalGeneration"]
    assert Path(verifier["name_or_path"]).is_absolute()
    layer = saved["transformer_layer_config"]
    assert (layer["num_attention_heads"], layer["head_dim"]) == (4, 32)


def test_run_leaves_the_planned_files_and_its_report(config_path, summary):
    config = load_config(config_path)
    plan = json.loads(cli("plan", config_path, "--json").stdout)
    assert plan["data"]["exact"] is True
    assert plan["data"]["samples"] == plan["data"]["extracted_samples"] == summary["extract"]["samples"]
    assert plan["data"]["tokens"] == summary["extract"]["tokens"]
    assert plan["disk"]["bytes"] == 0  # nothing is missing
    found = {entry["name"]: len(list(config.output.glob(entry["name"]))) for entry in plan["files"]}
    assert found == {entry["name"]: entry["count"] for entry in plan["files"]}
    names = sorted(path.name for path in (config.output / "pictures").iterdir())
    assert names == ["accuracy.png", "lengths.png", "loss.png"]


@pytest.mark.slow
def test_finished_run_is_recognised(config_path, summary):
    config = load_config(config_path)
    before = files(config)
    result = cli("extract", config_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert files(config) == before
    assert json.loads((config.steps_dir / "extract.json").read_text()) == summary["extract"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "changes", "expected"),
    [
        ("prepare", {"seed": 1}, "seed: 0 there, 1 now"),
        ("extract", {"extract": {"dtype": "bfloat16"}}, "dtype: 'float32' there"),
        ("extract", {"layer_ids": [1, 4, 5, 7]}, "layer_ids: [2, 4, 5, 7] there"),
        ("extract", {"layer_ids": [2, 4, 5, 6]}, "that end with the last layer, 7"),
        ("extract", {"trust_remote_code": False}, "trust_remote_code: true"),
        ("vocab", {"vocab": {"draft_vocab_size": 769}}, "769 of 768 tokens"),
        ("train", {"layer_ids": [1, 4, 5, 7]}, "layer_ids: [2, 4, 5, 7] there"),
        ("train", {"seed": 1}, "seed: 0 there, 1 now"),
        ("train", {"vocab": {"draft_vocab_size": 128}}, "Run the vocab step again"),
        ("train", {"train": {"resume": False}}, "no checkpoints"),
        ("train", {"train": {"train_ratio": 0.01}}, "at least one sample each"),
        ("train", {"train": {"epochs": 3, "draft": {"head_dim": 16}}}, "draft: "),
    ],
)
def test_what_does_not_fit_is_refused_unchanged(config_path, summary, step, changes, expected):
    config = load_config(config_path)
    before = files(config)
    result = cli(step, edit(config_path, "other", **changes))
    assert result.returncode == 2, result.stderr[-2000:]
    assert expected in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert files(config) == before


@pytest.mark.slow
def test_training_goes_on_after_the_last_complete_checkpoint(config_path, summary):
    config = load_config(config_path)
    (config.checkpoint_dir / "2").mkdir()
    (config.checkpoint_dir / "2" / "model.safetensors").write_bytes(b"half")
    result = cli("train", edit(config_path, "longer", train={"epochs": 3}))
    assert result.returncode == 0, result.stderr[-4000:]
    report = json.loads((config.steps_dir / "train.json").read_text())
    assert report["checkpoint"].endswith("/checkpoints/2")
    assert report["steps"] == summary["train"]["steps"] * 3 // 2
    assert report["last_validation_loss"] < summary["train"]["last_validation_loss"]
    assert (config.checkpoint_dir / "2.incomplete").is_dir()


@pytest.mark.slow
def test_missing_and_damaged_samples_are_filled_in_and_no_other(config_path, summary):
    config = load_config(config_path)
    before = files(config)
    missing, damaged = (FILES.path(config.data_dir, index) for index in (0, 3))
    missing.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-100])
    refused = cli("train", edit(config_path, "longest", train={"epochs": 4}))
    assert refused.returncode == 2
    assert "Run the extract step again" in refused.stderr
    result = cli("extract", config_path)
    assert result.returncode == 0, result.stderr[-4000:]
    after = files(config)
    assert {name for name in after if after[name] != before[name]} == {missing.name, damaged.name}
    assert verify(config.data_dir) == []
