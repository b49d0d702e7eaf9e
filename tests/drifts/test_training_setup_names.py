from __future__ import annotations

import pytest

from speculators_compat.drifts.training_setup_names import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside

NEW = """
torch = dist = fully_shard = None
_state = [0, 1, 0, False]
def maybe_setup_distributed(sp_size=1): _state[:] = [1, 4, 3, True]
def get_local_rank(): return _state[0]
def get_world_size(): return _state[1]
def get_rank(): return _state[2]
def is_distributed(): return _state[3]
def maybe_destroy_distributed(): pass
def apply_fully_sharded(model): return model
"""


@pytest.fixture
def newest(tmp_path):
    return fake_speculators(tmp_path, "0.9.0", {"train/utils.py": "", "train/distributed.py": NEW})


def test_the_symptom_without_it(newest):
    done = run_beside(
        newest, "from speculators.train.utils import maybe_setup_distributed", SPECULATORS_COMPAT_DISABLE=DRIFT.id
    )
    assert DRIFT.symptom in done.stderr


def test_the_old_names_give_what_they_gave(newest):
    code = """
from speculators.train import distributed, utils
from speculators.train.utils import maybe_setup_distributed, maybe_destroy_distributed, apply_fully_sharded
assert apply_fully_sharded is distributed.apply_fully_sharded
assert maybe_destroy_distributed is distributed.maybe_destroy_distributed
assert (utils.local_rank, utils.world_size, utils.is_distributed) == (1, 4, True)
assert maybe_setup_distributed() == (1, 4, 3, True)
print("FOUND")
"""
    done = run_beside(newest, code, LOCAL_RANK="1", WORLD_SIZE="4")
    assert "FOUND" in done.stdout, done.stderr
