from __future__ import annotations

import pytest

from speculators_compat.drifts.arrow_whole_split import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside

#: As in 0.5.0: only a split names its first file.
DATA = """
class ArrowDataset:
    def __init__(self, split_ratio=1.0):
        if split_ratio < 0:
            self.start_file_idx = 7
    def file_of(self, index): return index + self.start_file_idx
"""
CODE = """
from speculators.train.data import ArrowDataset
print("FILES", ArrowDataset().file_of(2), ArrowDataset(-0.1).file_of(2))
"""


@pytest.fixture
def folder(tmp_path):
    return fake_speculators(tmp_path, "0.5.0", {"train/data.py": DATA})


def test_symptom_and_fix(folder):
    assert DRIFT.symptom in run_beside(folder, CODE, SPECULATORS_COMPAT_DISABLE=DRIFT.id).stderr
    assert "FILES 2 9" in run_beside(folder, CODE).stdout
