import pytest

from speculators_compat.drifts.sampler_global_rank import DRIFT
from tests.support import shim

pytestmark = pytest.mark.engine


def batches(monkeypatch, rank: int, without: str = "", given: int | None = None) -> set[int]:
    """Samples that one of four processes, two a node, trains on in an epoch."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", str(rank % 2))
    monkeypatch.setenv("RANK", str(rank))
    with shim(without=without):
        from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

        sampler = MultipackDistributedBatchSamplerV2(
            batch_max_length=10, lengths=[5] * 32, num_replicas=4, rank=rank % 2 if given is None else given
        )
        return {int(index) for batch in sampler for index in batch}


def test_nodes_repeat_samples_without_and_share_them_with(monkeypatch):
    assert batches(monkeypatch, 0, DRIFT.id) == batches(monkeypatch, 2, DRIFT.id)
    shares = [batches(monkeypatch, rank) for rank in range(4)]
    assert sum(map(len, shares)) == 32
    assert set.union(*shares) == set(range(32))


def test_a_global_rank_stays(monkeypatch):
    assert batches(monkeypatch, 3, given=3) == batches(monkeypatch, 3)
