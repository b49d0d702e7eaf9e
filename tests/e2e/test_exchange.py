"""Samples in the form of 0.3 and 0.4 to that of 0.5 and later and back: every tensor is the same.

No engine runs here, but torch, datasets and speculators are needed.
"""

from __future__ import annotations

import json
import warnings

import pytest

from speculators_compat.drift import UsageError
from speculators_compat.exchange import export, import_
from speculators_compat.pipeline.prepare import fingerprint
from speculators_compat.store import Manifest, SampleStore, verify
from tests.rows import arrow_dataset, with_columns
from tests.support import speculators_is

pytestmark = [pytest.mark.engine, pytest.mark.cell]

LAYERS = [2, 4, 6, 7]
LENGTHS = [5, 1, 130, 17, 3, 2, 8, 9, 10, 11, 12, 4]


def sample(index: int, dtype: str):
    import torch

    generator = torch.Generator().manual_seed(index)
    size = LENGTHS[index]
    states = [torch.randn(size, 6, generator=generator).to(getattr(torch, dtype)) for _ in LAYERS]
    ids = torch.randint(0, 50, (size,), generator=generator)
    return {"input_ids": ids, "loss_mask": (ids % 2 == 0).long(), "hidden_states": states}


@pytest.fixture(params=["bfloat16", "float32"])
def extracted(request, tmp_path):
    """Twelve samples, so that 10 and 11 sort before 2 where somebody sorts names."""
    manifest = Manifest("verifier", LAYERS, request.param, "f" * 64, len(LENGTHS), 7, 200, {"vllm": "0.16.0"})
    store = SampleStore(tmp_path / "old", manifest)
    with store.writing():
        for index in range(len(LENGTHS)):
            store.write(index, sample(index, request.param))
        store.write_lengths(dict(enumerate(LENGTHS)))
    (store.folder / "data_config.json").write_text(json.dumps({"hidden_states": {"layer_ids": LAYERS}}))
    return store.folder, request.param


@pytest.fixture
def run_folder(extracted, tmp_path):
    """The same samples as a run on speculators 0.5 and later leaves them: rows here, states there."""
    old, dtype = SampleStore.open(extracted[0]), extracted[1]
    samples = [sample(index, dtype) for index in range(len(LENGTHS))]
    rows = with_columns(*([one[name].tolist() for one in samples] for name in ("input_ids", "loss_mask")))
    rows.save_to_disk(str(tmp_path / "run" / "prepared" / "rows"))
    content = {**old.manifest.__dict__, "dataset_fingerprint": fingerprint(rows), "form": "safetensors"}
    store = SampleStore(tmp_path / "run" / "data", Manifest(**content))
    with store.writing():
        for index, one in enumerate(samples):
            store.write(index, one)
        store.write_lengths(dict(enumerate(LENGTHS)))
    (store.folder / "data_config.json").write_text(json.dumps({"hidden_states": {"layer_ids": LAYERS}}))
    return tmp_path / "run", dtype


def same(folder, dtype):
    import torch

    for index in range(len(LENGTHS)):
        found, wanted = torch.load(folder / f"data_{index}.pt", weights_only=True), sample(index, dtype)
        assert found.keys() == wanted.keys()
        for name in ("input_ids", "loss_mask"):
            assert found[name].dtype is wanted[name].dtype
            assert torch.equal(found[name], wanted[name])
        for one, other in zip(found["hidden_states"], wanted["hidden_states"], strict=True):
            assert one.dtype is other.dtype
            assert torch.equal(one, other)


def test_there_and_back_is_the_identity(extracted, tmp_path):
    source, dtype = extracted
    assert export(source, tmp_path / "new") == len(LENGTHS)
    assert import_(tmp_path / "new", tmp_path / "back") == len(LENGTHS)
    same(tmp_path / "back", dtype)
    assert verify(tmp_path / "new") == []
    assert verify(tmp_path / "back") == []
    for name in ("manifest.json", "sample_lengths.json", "data_config.json"):
        assert json.loads((tmp_path / "back" / name).read_text()) == json.loads((source / name).read_text())


new_trainer = pytest.mark.skipif(
    not speculators_is(">=0.5"),
    reason="the new form's trainer: https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py",
)


@new_trainer
def test_the_new_trainer_reads_every_sample_of_an_export(extracted, tmp_path):
    source, dtype = extracted
    export(source, tmp_path / "new")
    trained_on(arrow_dataset(tmp_path / "new", dtype), dtype)


@new_trainer
@pytest.mark.parametrize("split", ["whole", "validation"])
def test_the_new_trainer_reads_every_sample_of_a_run(run_folder, split):
    """Rows and states lie apart, and every check of its own that upstream has for states passes."""
    run, dtype = run_folder
    first = 0 if split == "whole" else 9
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # what upstream says of a sample that it leaves out
        rows = arrow_dataset(run / "prepared" / "rows", dtype, run / "data" / "hidden_states", first / len(LENGTHS))
        trained_on(rows, dtype, first)
    check = own_check()
    for index, file in SampleStore.open(run / "data").files.found(run / "data").items():
        check(file, sample(index, dtype)["input_ids"].tolist())


def trained_on(rows, dtype, first=0):
    """Each of upstream's samples is ours: the last layer is its target, the others side by side are its input."""
    import torch

    assert len(rows) == len(LENGTHS) - first
    assert list(rows.approx_lengths) == LENGTHS[first:]
    for place in range(len(rows)):
        found, wanted = rows[place], sample(first + place, dtype)
        assert torch.equal(found["input_ids"], wanted["input_ids"])
        assert torch.equal(found["loss_mask"].long(), wanted["loss_mask"])
        assert torch.equal(found["hidden_states"], torch.cat(wanted["hidden_states"][:-1], dim=-1))
        assert torch.equal(found["verifier_last_hidden_states"], wanted["hidden_states"][-1])
        assert found["hidden_states"].dtype is getattr(torch, dtype)


def own_check():
    """What upstream's own extraction demands of a file of states; 0.5 to 0.7 only demand its ids."""
    from safetensors.torch import load_file

    try:
        from speculators.data_generation.offline import check_hidden_states
    except ImportError:

        def check_hidden_states(data, tokens):
            assert data["token_ids"].tolist() == tokens

    return lambda file, tokens: check_hidden_states(load_file(file), tokens)


def test_a_run_of_the_new_form_is_exported_with_its_rows_and_imported(run_folder, tmp_path):
    """``data`` alone has no masks: they come from the rows beside it."""
    run, dtype = run_folder
    assert export(run / "data", tmp_path / "new") == len(LENGTHS)
    assert verify(tmp_path / "new") == []
    for index in range(len(LENGTHS)):
        name = f"hidden_states/hs_{index}.safetensors"
        assert (tmp_path / "new" / name).read_bytes() == (run / "data" / name).read_bytes()
    for source, target in ((tmp_path / "new", "back"), (run / "data", "straight")):
        assert import_(source, tmp_path / target) == len(LENGTHS)
        same(tmp_path / target, dtype)
        assert verify(tmp_path / target) == []
    found = json.loads((tmp_path / "back" / "manifest.json").read_text())
    assert found == {**json.loads((run / "data" / "manifest.json").read_text()), "form": "pt"}
    assert export(tmp_path / "new", tmp_path / "copy") == len(LENGTHS)
    assert verify(tmp_path / "copy") == []


def test_rows_that_are_elsewhere_are_named_and_others_refused(run_folder, tmp_path):
    run, _ = run_folder
    rows = (run / "prepared" / "rows").rename(tmp_path / "rows")
    with pytest.raises(UsageError, match=r"no state\.json.*--rows"):
        export(run / "data", tmp_path / "new")
    assert export(run / "data", tmp_path / "new", rows) == len(LENGTHS)
    assert import_(run / "data", tmp_path / "back", rows=rows) == len(LENGTHS)
    manifest = run / "data" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"dataset_fingerprint": "', '"dataset_fingerprint": "0'))
    with pytest.raises(UsageError, match="other ids or masks"):
        export(run / "data", tmp_path / "other", rows)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_states_that_are_not_those_of_their_rows_are_not_exported(run_folder, tmp_path, damage):
    run, _ = run_folder
    store = SampleStore.open(run / "data")
    if damage == "missing":
        store.path(4).unlink()
    else:
        store.path(4).write_bytes(store.path(3).read_bytes() if damage == "other" else store.path(4).read_bytes()[:-1])
    said = {"missing": "1 of 12 missing", "truncated": r"hs_4\.safetensors: unreadable", "other": "other token_ids"}
    with pytest.raises(UsageError, match=said[damage]):
        export(run / "data", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_gap_is_refused_and_nothing_is_left(extracted, tmp_path):
    source, _ = extracted
    (source / "data_4.pt").unlink()
    with pytest.raises(UsageError, match="1 of 12 missing"):
        export(source, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


def test_states_of_other_tokens_are_refused(extracted, tmp_path):
    source, _ = extracted
    export(source, tmp_path / "new")
    states = tmp_path / "new" / "hidden_states"
    (states / "hs_3.safetensors").write_bytes((states / "hs_2.safetensors").read_bytes())
    with pytest.raises(UsageError, match=r"other token_ids in hs_3\.safetensors"):
        import_(tmp_path / "new", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_folder_that_does_not_say_its_layers_is_told_them(extracted, tmp_path):
    source, dtype = extracted
    export(source, tmp_path / "new")
    for name in ("manifest.json", "exchange.json"):
        (tmp_path / "new" / name).unlink()
    with pytest.raises(UsageError, match="--vllm-layer-ids"):
        import_(tmp_path / "new", tmp_path / "back")
    import_(tmp_path / "new", tmp_path / "back", "verifier", [3, 5, 7, 8])
    same(tmp_path / "back", dtype)
    assert SampleStore.open(tmp_path / "back").manifest.layer_ids == LAYERS
