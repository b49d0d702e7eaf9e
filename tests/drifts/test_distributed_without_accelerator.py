"""Two real processes, and the symptom: tests/e2e/test_distributed_training.py. Here, one process is left alone."""

import pytest

from tests.support import shim

pytestmark = pytest.mark.engine


def test_without_torchrun_nothing_is_started():
    with shim():
        from speculators.train import utils

        assert utils.maybe_setup_distributed() == (0, 1, 0, False)
