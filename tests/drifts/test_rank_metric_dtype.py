"""With two processes the whole: tests/e2e/test_newest_training.py. Here, what each of them sends."""

from __future__ import annotations

import pytest

from speculators_compat.drifts.rank_metric_dtype import DRIFT, _dist_that_reduces_floats
from tests.drifts.trained import trained
from tests.support import applies, run_python

pytestmark = [pytest.mark.engine, applies(DRIFT)]

STEP = """
import sys
import torch, torch.distributed as dist
from speculators_compat.drifts.rank_metric_dtype import _dist_that_reduces_floats
def process(rank, name, mended):
    dist.init_process_group("gloo", init_method=f"file://{name}", rank=rank, world_size=2)
    total = torch.tensor(1.0 if rank == 0 else 0)  # as the trainer of 0.8 makes it
    (_dist_that_reduces_floats(dist) if mended else dist).reduce(total, dst=0, op=dist.ReduceOp.SUM)
    assert rank or total == 1
    dist.barrier()
import multiprocessing
fork = multiprocessing.get_context("fork")
started = [fork.Process(target=process, args=(rank, sys.argv[0], MENDED)) for rank in (0, 1)]
[one.start() for one in started]
[one.join(60) for one in started]
[one.kill() for one in started]
print("CODES", [one.exitcode for one in started])
"""


def test_symptom_without_and_a_sum_with(tmp_path):
    for mended in (False, True):
        code = STEP.replace("MENDED", str(mended)).replace("sys.argv[0]", repr(str(tmp_path / str(mended))))
        done = run_python(code)
        assert ("CODES [0, 0]" in done.stdout) is mended, done.stderr[-2000:]
        assert (DRIFT.symptom in done.stderr) is not mended


def test_one_process_reports_what_it_did(training_run, tmp_path):
    assert trained(training_run, tmp_path / "run")["first_loss"] > 0


def test_integers_are_sent_as_floats_and_come_back_as_they_were():
    import torch

    class Dist:
        def reduce(self, tensor, dst):
            sent.append(tensor.dtype)
            tensor.mul_(3)

    sent: list = []
    count, loss = torch.tensor(2), torch.tensor(0.5)
    ours = _dist_that_reduces_floats(Dist())
    ours.reduce(count, dst=0)
    ours.reduce(loss, dst=0)
    assert sent == [torch.float32, torch.float32]
    assert (count.dtype, int(count), float(loss)) == (torch.int64, 6, 1.5)
