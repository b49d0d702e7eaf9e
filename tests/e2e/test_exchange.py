"""Samples in the form of 0.3 and 0.4 to that of 0.5 and later and back: every tensor is the same.

No engine runs here, but torch, datasets and speculators are needed.
"""

from __future__ import annotations

import json

import pytest

from speculators_compat.drift import UsageError
from speculators_compat.exchange import export, import_
from speculators_compat.store import Manifest, SampleStore, verify
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
    assert verify(tmp_path / "back") == []
    for name in ("manifest.json", "sample_lengths.json", "data_config.json"):
        assert json.loads((tmp_path / "back" / name).read_text()) == json.loads((source / name).read_text())


@pytest.mark.skipif(
    not speculators_is(">=0.5"),
    reason="the new form's trainer: https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py",
)
def test_the_new_trainer_reads_every_sample(extracted, tmp_path):
    import torch
    from speculators.train.data import ArrowDataset

    source, dtype = extracted
    export(source, tmp_path / "new")
    rows = ArrowDataset(
        256,
        tmp_path / "new",
        on_missing="raise",
        hidden_states_dtype=getattr(torch, dtype),
        **whole_split(ArrowDataset),
    )
    assert len(rows) == len(LENGTHS)
    assert list(rows.approx_lengths) == LENGTHS
    for index in range(len(LENGTHS)):
        found, wanted = rows[index], sample(index, dtype)
        assert torch.equal(found["input_ids"], wanted["input_ids"])
        assert torch.equal(found["loss_mask"].long(), wanted["loss_mask"])
        assert torch.equal(found["hidden_states"], torch.cat(wanted["hidden_states"][:-1], dim=-1))
        assert torch.equal(found["verifier_last_hidden_states"], wanted["hidden_states"][-1])


def whole_split(dataset):
    """0.5.0 fails where nothing is left for validation (its start index is never set)."""
    import inspect

    names = inspect.signature(dataset.__init__).parameters
    return {"train_ratio": 1.0} if "train_ratio" in names else {"split_ratio": 1.0}


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
