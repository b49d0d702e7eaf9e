from __future__ import annotations

import pytest

from speculators_compat.drifts.training_data_names import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside, stub

SHIFT = {"models/eagle3/data.py": "def shift_batch(batch): return ('shifted', batch)\n"}
#: As in 0.5 to 0.7: the class has another name and does not shift.
READING = {
    "train/data.py": """
import torch
def list_files(path): return 'its own'
class SampleFileDataset:
    def __init__(self, max_len, datapath, file_list, transform, hidden_states_dtype):
        self.data, self.dtype = file_list, hidden_states_dtype
    def _get_raw_data(self, index): return self.data[index]
    def __getitem__(self, index): return self._get_raw_data(index)
""",
    **SHIFT,
}
NOT_READING = {"train/data.py": "class CollateFn: pass\n", **SHIFT}


@pytest.fixture
def old(tmp_path):
    stub(tmp_path, "torch")
    return fake_speculators(tmp_path, "0.7.0", READING)


@pytest.fixture
def new(tmp_path):
    stub(tmp_path, "torch")
    return fake_speculators(tmp_path, "0.8.1", NOT_READING)


def test_the_symptom_without_it(new):
    done = run_beside(
        new, "from speculators.train.data import Eagle3SampleFileDataset", SPECULATORS_COMPAT_DISABLE=DRIFT.id
    )
    assert DRIFT.symptom in done.stderr


def test_a_moved_function_is_found(new):
    code = """
from speculators.train.data import shift_batch
from speculators.models.eagle3 import data
assert shift_batch is data.shift_batch
print("SAME")
"""
    assert "SAME" in run_beside(new, code).stdout


def test_the_renamed_dataset_shifts_as_it_did(old):
    code = """
import pickle
import speculators.train.data as data
dataset = data.Eagle3SampleFileDataset(64, file_list=["first", "second"])
assert dataset[1] == ("shifted", "second"), dataset[1]
assert dataset.dtype is not None
assert isinstance(dataset, data.SampleFileDataset)
assert data.Eagle3SampleFileDataset is data.Eagle3SampleFileDataset
assert pickle.loads(pickle.dumps(data.Eagle3SampleFileDataset)) is data.Eagle3SampleFileDataset
assert data.list_files(".") == "its own"
print("READ")
"""
    done = run_beside(old, code)
    assert "READ" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["Eagle3SampleFileDataset", "split_files", "standardize_data_v1"])
def test_what_is_gone_names_what_replaced_it(new, name):
    done = run_beside(new, f"from speculators.train.data import {name}")
    assert f"RemovedNameError: speculators removed speculators.train.data.{name} after 0.7.0" in done.stderr
    assert "hs_<index>.safetensors" in done.stderr


def test_a_name_that_never_was_is_refused_as_ever(new):
    done = run_beside(new, "import speculators.train.data as data\nprint(hasattr(data, 'nonsense'))")
    assert "False" in done.stdout
