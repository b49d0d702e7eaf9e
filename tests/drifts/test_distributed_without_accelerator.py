import pytest

from speculators_compat.drifts.distributed_without_accelerator import _dist_that_averages

pytestmark = pytest.mark.engine

# The symptom and two real processes over gloo: tests/e2e/test_distributed_training.py.


def test_average_over_gloo_is_the_average(tmp_path):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="AVG"):
            dist.reduce(torch.ones(2), dst=0, op=dist.ReduceOp.AVG)
        value = torch.full((2,), 3.0)
        _dist_that_averages(dist).reduce(value, dst=0, op=dist.ReduceOp.AVG)
        assert value.tolist() == [3.0, 3.0]
    finally:
        dist.destroy_process_group()
