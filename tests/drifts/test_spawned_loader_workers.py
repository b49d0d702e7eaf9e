import pytest

from speculators_compat.drifts.spawned_loader_workers import DRIFT
from tests.support import applies, shim
from tests.training_runs import loaded_with_the_shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@pytest.mark.parametrize(("off", "expected"), [(DRIFT.id, False), ("", True)])
def test_a_spawned_loader_has_the_shim(off, expected):
    with shim(without=off):
        from speculators.train import dataloader

        loader = dataloader.DataLoader(
            [0], collate_fn=loaded_with_the_shim, num_workers=1, multiprocessing_context="spawn"
        )
        assert list(loader) == [expected]
