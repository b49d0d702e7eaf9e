"""Two real processes: tests/e2e/test_newest_training.py. Here, one that torchrun could have started."""

import pytest

from speculators_compat.drifts.process_group_without_accelerator import DRIFT
from tests.support import applies, run_python

pytestmark = [pytest.mark.engine, applies(DRIFT)]

START = """
import speculators_compat
from speculators.train import distributed
distributed.maybe_setup_distributed()
print("STARTED", distributed.get_rank(), distributed.get_world_size(), distributed.dist.get_backend())
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])
    def forward(self, x):
        return self.layers[0](x)
model = Model()
distributed.apply_fully_sharded(model)
model(torch.ones(1, 4)).sum().backward()
print("SHARDED")
distributed.maybe_destroy_distributed()
"""
TORCHRUN = {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29713"}


def test_symptom_without_and_gloo_with():
    without = run_python(START, env={**TORCHRUN, "SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert DRIFT.symptom in without.stderr
    done = run_python(START, env=TORCHRUN)
    assert "STARTED 0 1 gloo" in done.stdout, done.stderr[-2000:]
    assert "SHARDED" in done.stdout, done.stderr[-2000:]


def test_without_torchrun_nothing_is_started():
    done = run_python("import speculators_compat; from speculators.train import distributed as d; "
                      "d.maybe_setup_distributed(); print('ALONE', d.is_distributed())")  # fmt: skip
    assert "ALONE False" in done.stdout, done.stderr[-2000:]
