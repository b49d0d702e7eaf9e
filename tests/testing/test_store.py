"""The extracted-data folder: complete-or-absent files, manifest, verification."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from speculators_compat.drift import UsageError
from speculators_compat.sample_files import FORMS
from speculators_compat.shard import Shard
from speculators_compat.store import Manifest, SampleStore, atomic_file, verify

pytestmark = pytest.mark.default_pair

MANIFEST = Manifest(
    model="model",
    layer_ids=[2, 3, 4, 6],
    dtype="float32",
    dataset_fingerprint="f" * 64,
    num_samples=3,
    seed=0,
    seq_length=16,
    versions={"vllm": "0.16.0"},
)


def sample(tokens: int, layers: int = 4, offset: int = 0):
    return {
        "input_ids": torch.arange(tokens) + offset,
        "hidden_states": [torch.randn(tokens, 8) for _ in range(layers)],
        "loss_mask": torch.ones(tokens, dtype=torch.int64),
    }


@pytest.fixture(params=FORMS)
def manifest(request):
    """The same samples in each form."""
    return dataclasses.replace(MANIFEST, form=request.param)


@pytest.fixture
def store(tmp_path, manifest):
    store = SampleStore(tmp_path / "data", manifest)
    with store.writing():
        lengths = {}
        for index, tokens in enumerate((5, 1, 9)):
            store.write(index, sample(tokens))
            lengths[index] = tokens
        store.write_lengths(lengths)
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_complete_folder_is_sound(store):
    assert verify(store.folder) == []
    assert store.lengths() == {0: 5, 1: 1, 2: 9}
    content = store.files.read(store.path(2))
    assert content["input_ids"].dtype == torch.int64
    assert [state.shape for state in content["hidden_states"]] == [(9, 8)] * 4
    lengths = json.loads((store.folder / "sample_lengths.json").read_text())
    assert lengths == {"0": 5, "1": 1, "2": 9}
    assert store.files.found(store.folder) == {index: store.path(index) for index in range(3)}


@pytest.mark.parametrize("manifest", ["pt"], indirect=True)
def test_folder_holds_the_format_of_speculators_0_4(store):
    content = torch.load(store.path(2), weights_only=True)
    assert set(content) == {"input_ids", "hidden_states", "loss_mask"}
    assert content["input_ids"].dtype == content["loss_mask"].dtype == torch.int64
    assert sorted(path.name for path in store.folder.glob("*pt")) == [f"data_{i}.pt" for i in range(3)]


@pytest.mark.parametrize("manifest", ["safetensors"], indirect=True)
def test_folder_holds_the_format_of_speculators_0_5(store):
    content = load_file(store.folder / "hidden_states" / "hs_2.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in content.items()} == {
        "hidden_states": (9, 4, 8),
        "token_ids": (9,),
    }
    assert content["token_ids"].dtype == torch.int64


@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "flipped", "not finite", "other length"])
def test_every_kind_of_damage_is_found(store, damage):
    path = store.path(1)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-30])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        place = content.index(store.files.read(path)["hidden_states"][0].numpy().tobytes())
        content[place] ^= 1
        path.write_bytes(content)
    elif damage == "not finite":
        broken = sample(1)
        broken["hidden_states"][2][0, 0] = float("nan")
        store.write(1, broken)
    else:
        store.write(1, sample(2))
    (problem,) = verify(store.folder)
    assert problem.startswith(f"{path.name}: ")


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_resuming_sees_a_truncated_file_as_missing(store, keep):
    path = store.path(0)
    path.write_bytes(path.read_bytes()[:keep])
    assert sorted(store.lengths()) == [1, 2]


def test_resuming_sees_a_file_of_another_row_as_missing(store):
    rows = [torch.arange(5), torch.arange(1), torch.arange(9) + 1]
    assert sorted(store.lengths(lambda index: rows[index])) == [0, 1]


def test_a_sample_shorter_than_its_row_is_there_only_where_the_trainer_takes_it(store):
    longer = {0: torch.arange(5), 1: torch.arange(1), 2: torch.arange(12)}
    assert sorted(store.lengths(longer.get)) == ([0, 1, 2] if store.manifest.form == "pt" else [0, 1])


@pytest.mark.parametrize("layers", [3, 5])
def test_wrong_number_of_layers_is_not_written(store, layers):
    before = store.path(0).read_bytes()
    with pytest.raises(ValueError, match=f"{layers} states for 4 layers"):
        store.write(0, sample(5, layers))
    assert store.path(0).read_bytes() == before


def test_mask_of_another_length_is_not_written(store):
    wrong = {**sample(5), "loss_mask": torch.ones(4, dtype=torch.int64)}
    with pytest.raises(ValueError, match="mask covers"):
        store.write(0, wrong)


def test_views_are_written_without_the_tensor_they_belong_to(store):
    large = torch.randn(100_000, 8)
    size = store.write(0, {**sample(5), "hidden_states": [large[:5] for _ in range(4)]})
    assert size < 10_000


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "data_0.pt"
    path.write_bytes(b"old")

    def fail():
        with atomic_file(path) as file:
            file.write(b"half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["data_0.pt"]


def unfinished(store: SampleStore, index: int) -> Path:
    path = store.path(index)
    return path.with_name(f".partial-{path.name}.host.name.1")


def test_leftovers_of_a_killed_writer_are_no_samples_and_go_away(store):
    leftover = unfinished(store, 7)
    leftover.write_bytes(b"half")
    assert not leftover.name.endswith("pt")  # list_files would take it
    with store.writing():
        assert not leftover.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "other"),
        ("layer_ids", [1, 3, 4, 6]),
        ("dtype", "bfloat16"),
        ("dataset_fingerprint", "0" * 64),
        ("num_samples", 4),
        ("seed", 1),
        ("seq_length", 32),
        ("versions", {"vllm": "0.17.0"}),
    ],
)
def test_folder_of_another_run_is_refused_unchanged(store, manifest, field, value):
    before = contents(store.folder)
    with pytest.raises(UsageError) as error:
        SampleStore(store.folder, dataclasses.replace(manifest, **{field: value}))
    assert f"{field}: {getattr(manifest, field)!r} there, {value!r} now" in error.value.found
    assert contents(store.folder) == before


def test_folder_of_the_other_form_is_refused_unchanged(store, manifest):
    before = contents(store.folder)
    (other,) = FORMS.keys() - {manifest.form}
    with pytest.raises(UsageError) as error:
        SampleStore(store.folder, dataclasses.replace(manifest, form=other))
    assert error.value.found == f"form: {manifest.form!r} there, {other!r} now"
    assert contents(store.folder) == before


@pytest.mark.parametrize("manifest", ["pt"], indirect=True)
def test_a_manifest_of_before_there_were_two_forms_is_of_the_first(store, manifest):
    path = store.folder / "manifest.json"
    content = json.loads(path.read_text())
    assert content.pop("form") == "pt"
    path.write_text(json.dumps(content))
    assert SampleStore(store.folder, manifest).lengths() == {0: 5, 1: 1, 2: 9}
    assert SampleStore.open(store.folder).manifest == manifest


@pytest.mark.parametrize("name", ["data_0.pt", "hidden_states/hs_0.safetensors"])
def test_samples_without_a_manifest_are_refused(tmp_path, manifest, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError, match="no manifest"):
        SampleStore(tmp_path, manifest)


@pytest.mark.parametrize("text", ['{"model": ', json.dumps({**dataclasses.asdict(MANIFEST), "form": "parquet"})])
def test_unreadable_manifest_is_refused(store, manifest, text):
    (store.folder / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match="must be a manifest"):
        SampleStore(store.folder, manifest)


def test_second_writer_is_refused(store):
    with store.writing(), pytest.raises(UsageError, match="another process"), store.writing():
        pass


def test_writers_of_different_parts_work_side_by_side(store):
    with store.writing(Shard(0, 2)):
        with store.writing(Shard(1, 2)):
            pass
        with pytest.raises(UsageError, match="another process"), store.writing(Shard(0, 2)):
            pass
        with pytest.raises(UsageError, match="another process"), store.writing():
            pass
    with store.writing(), pytest.raises(UsageError, match="another process"), store.writing(Shard(1, 2)):
        pass


def test_a_part_leaves_the_unfinished_files_of_others_alone(store):
    mine, others = (unfinished(store, index) for index in (7, 8))
    manifests = store.folder / ".partial-manifest.json.host.1"
    for leftover in (mine, others, manifests):
        leftover.write_bytes(b"half")
    with store.writing(Shard(1, 2)):
        assert not mine.exists()
        assert others.exists()
        assert manifests.exists()


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "0/0", "1/2/3", "a/b"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(UsageError, match="I/N"):
        Shard.parse(text)


def test_parts_are_disjoint_and_all():
    parts = [Shard.parse(f"{index}/3") for index in range(3)]
    assert [[part.index for part in parts if part.owns(sample)] for sample in range(7)] == [[i % 3] for i in range(7)]


def test_verifying_something_else_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Run the extract step"):
        verify(tmp_path)
