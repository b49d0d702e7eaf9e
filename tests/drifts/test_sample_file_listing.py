import pytest

from speculators_compat.drifts.sample_file_listing import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import write_samples
from tests.support import shim

pytestmark = pytest.mark.engine


def read_all(folder) -> int:
    from speculators.train.data import Eagle3SampleFileDataset

    dataset = Eagle3SampleFileDataset(max_len=128, datapath=str(folder))
    return len([dataset[index] for index in range(len(dataset))])


def test_symptom_without_and_samples_alone_with(tmp_path):
    import torch

    config = text_config(str(make_llama(tmp_path / "llama")))
    folder = write_samples(tmp_path / "samples", config, count=3)
    torch.save({1: 2}, folder / "token_freq.pt")
    (folder / "notes.txt.gpt").write_text("text")
    with shim(without=DRIFT.id), pytest.raises(Exception) as error:  # noqa: PT011 - the order of files decides which
        read_all(folder)
    assert type(error.value).__name__ in ("KeyError", "RuntimeError", "UnpicklingError")
    with shim():
        assert read_all(folder) == 3


def test_order_does_not_depend_on_the_file_system(tmp_path, monkeypatch):
    from speculators.train import data

    for index in (3, 1, 2):
        (tmp_path / f"data_{index}.pt").touch()
    names = [f"data_{index}.pt" for index in (2, 3, 1)]
    monkeypatch.setattr(data.os, "walk", lambda path: [(str(path), [], names)])
    with shim():
        assert [path.name for path in data.list_files(tmp_path)] == sorted(names)
