"""The plan beside real rows, samples and drafts: its figures are those of the files and tensors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tests.drafts import draft_model
from tests.support import shim

from speculators_compat.drift import UsageError
from speculators_compat.pipeline import extract, manifest, prepare, sizes
from speculators_compat.pipeline import plan as planning
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.pipeline.manifest import manifest_of
from speculators_compat.pipeline.sizes import Shape, draft_size, sample_bytes
from speculators_compat.pipeline.verifier import check_run
from speculators_compat.pipeline.workload import row_lengths
from speculators_compat.sample_files import FORMS
from speculators_compat.store import SampleStore, write_json
from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config

LENGTHS = [100, 3, 64, 17]


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model("llama", tmp_path_factory.mktemp("models") / "llama", num_hidden_layers=8)


@pytest.fixture
def config(tmp_path, llama) -> RunConfig:
    """A run whose rows are prepared."""
    data = tmp_path / "data.jsonl"
    data.write_text('{"conversations": []}\n' * 9)
    content = {"model": str(llama), "output": str(tmp_path / "run"), "seq_length": 100, "prepare": {"data": str(data)}}
    content |= {"vocab": {"draft_vocab_size": 64}, "train": {"epochs": 1}}
    config = RunConfig.model_validate(content)
    rows = Dataset.from_dict({"input_ids": [list(range(n)) for n in LENGTHS], "loss_mask": [[1] * n for n in LENGTHS]})
    rows.save_to_disk(str(config.prepared_dir / "rows"))
    record = {"inputs": prepare._inputs(config), "fingerprint": "f" * 64}
    write_json(config.prepared_dir / "prepared.json", record)
    return config


def store_of(config: RunConfig) -> SampleStore:
    verifier = check_run(config)
    return SampleStore(config.data_dir, manifest_of(config, verifier, "f" * 64, len(LENGTHS)))


def write_sample(store: SampleStore, config: RunConfig, index: int) -> int:
    tokens, hidden = LENGTHS[index], check_run(config).hidden_size
    states = [torch.zeros(tokens, hidden, dtype=torch.bfloat16) for _ in range(4)]
    sample = {"input_ids": torch.arange(tokens), "hidden_states": states, "loss_mask": torch.ones(tokens).long()}
    with store.writing():
        return store.write(index, sample)


def usage(monkeypatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=free))


def test_tokens_of_prepared_rows_are_exact(config):
    rows, _ = prepare.load_rows(config)
    assert row_lengths(rows) == LENGTHS
    work = planning.make_plan(config).work
    assert (work.samples, work.tokens, work.exact) == (4, sum(LENGTHS), True)
    assert work.source.startswith("exact: ")


def test_rows_of_another_configuration_are_refused(config):
    other = config.model_copy(update={"seed": 1})
    with pytest.raises(UsageError, match="seed: 0 there, 1 now"):
        planning.make_plan(other)


@pytest.mark.parametrize("form", FORMS)
def test_the_size_of_a_sample_is_that_of_its_file(config, form, monkeypatch):
    for module in (manifest, sizes):
        monkeypatch.setattr(module, "installed_form", lambda: form)
    store, shape = store_of(config), Shape.of(check_run(config))
    for index in range(len(LENGTHS)):
        written = write_sample(store, config, index)
        planned = sample_bytes(config, shape, 1, LENGTHS[index])
        assert 0 <= planned - written < store.files.overhead
        assert store.path(index).name == FORMS[form].name.format(index=index)


def test_readable_samples_do_not_count_again_and_damaged_ones_do(config):
    store, shape = store_of(config), Shape.of(check_run(config))
    for index in (0, 2):
        write_sample(store, config, index)
    plan = planning.make_plan(config)
    assert (plan.work.done_samples, plan.work.done_tokens) == (2, 164)
    (samples,) = (item for item in plan.sections[planning.DISK] if item.name == "samples")
    assert samples.bytes == sample_bytes(config, shape, 2, 20)
    store.path(2).write_bytes(store.path(2).read_bytes()[:-100])
    assert planning.make_plan(config).work.missing == (3, 84)


def test_samples_of_another_run_are_refused(config):
    write_sample(store_of(config), config, 0)
    changed = config.model_copy(update={"extract": config.extract.model_copy(update={"dtype": "float32"})})
    with pytest.raises(UsageError, match="dtype: 'auto' there, 'float32' now"):
        planning.make_plan(changed)


def test_extraction_refuses_a_small_disk_before_an_engine_starts(config, monkeypatch):
    write_sample(store_of(config), config, 0)
    plan = planning.make_plan(config)
    needed = sum(item.bytes for item in plan.sections[planning.DISK])

    def start(config, verifier):
        raise RuntimeError("the engine starts")

    monkeypatch.setattr(extract, "_generator", start)
    usage(monkeypatch, needed - 1)
    with pytest.raises(UsageError) as error:
        extract.run(config)
    with pytest.raises(UsageError) as planned:
        planning.check(plan)
    assert str(error.value) == str(planned.value)
    assert "84 tokens x" in error.value.required
    usage(monkeypatch, needed)
    with pytest.raises(RuntimeError, match="the engine starts"):
        extract.run(config)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_the_engine_would_cut_are_refused_where_the_trainer_leaves_them_out(config, form, monkeypatch):
    """Rows of 100, 3, 64 and 17 tokens, and a verifier of 64 positions, one of which the engine keeps for itself."""
    path = Path(config.model, "config.json")
    content = json.loads(path.read_text())
    monkeypatch.setattr(manifest, "installed_form", lambda: form)
    monkeypatch.setattr(extract, "_generator", lambda config, verifier: pytest.fail("the engine starts"))
    with changed(path, {**content, "max_position_embeddings": 64}):
        if form == "pt":
            with pytest.raises(pytest.fail.Exception, match="the engine starts"):
                extract.run(config)
            return
        with pytest.raises(UsageError, match=r"63 tokens.*2 of 4 rows are longer.*seq_length to 63"):
            extract.run(config)


@contextmanager
def changed(path: Path, content: dict) -> Iterator[None]:
    """A JSON file with another content for a while; the model's folder is shared."""
    before = path.read_bytes()
    path.write_text(json.dumps(content))
    try:
        yield
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("kind", ["llama", "kimi_k25"])
def test_parameters_of_the_draft_are_counted(tmp_path, kind):
    verifier = make_model(kind, tmp_path / kind)
    config = text_config(str(verifier))
    with shim():
        model = draft_model(verifier, config, config.vocab_size // 2)
    fields = model.config.transformer_layer_config.to_dict()
    size = draft_size(fields, config.vocab_size // 2)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    frozen = {name: p.numel() for name, p in model.named_parameters() if not p.requires_grad and "norm" not in name}
    assert size.trained == trained
    assert size.layers == sum(p.numel() for p in model.layers.parameters())
    assert sum(frozen.values()) == size.embedding + size.verifier_head
    model.save_pretrained(
        tmp_path / "saved",
        state_dict={n: t.bfloat16() if t.is_floating_point() else t for n, t in model.state_dict().items()},
    )
    written = (tmp_path / "saved" / "model.safetensors").stat().st_size
    assert 0 < written - size.saved_weights < 16_384  # the header


def test_weights_of_a_tiny_kimi_are_its_files(tmp_path):
    folder = make_model("kimi_k25", tmp_path / "kimi", num_hidden_layers=8)
    content = {"model": str(folder), "output": str(tmp_path / "run"), "prepare": {"data": "sharegpt", "max_samples": 5}}
    plan = planning.make_plan(RunConfig.model_validate({**content, "vocab": {"draft_vocab_size": 64}}))
    (weights,) = (item for item in plan.sections[planning.EXTRACT_GPU] if item.name == "verifier weights")
    files = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert 0 < files - weights.bytes < 200_000  # the headers
    assert json.dumps(plan.as_dict())


def test_a_missing_folder_two_levels_down_is_one_error(tmp_path):
    """Hugging Face takes one slash in an id, and refuses two with an error of its own."""
    content = {"model": "no/such/folder", "output": str(tmp_path), "prepare": {"data": "sharegpt", "max_samples": 2}}
    with pytest.raises(UsageError, match="checkpoint folder or a Hugging Face id"):
        planning.make_plan(RunConfig.model_validate(content))
