import os

import pytest

from speculators_compat.drifts import fork_after_cuda
from speculators_compat.drifts.fork_after_cuda import START_METHOD


@pytest.fixture
def start(monkeypatch):
    monkeypatch.delenv(START_METHOD, raising=False)

    def run(in_use: bool) -> str | None:
        monkeypatch.setattr(fork_after_cuda, "accelerator_in_use", lambda: in_use)
        return fork_after_cuda._spawn_if_needed(lambda: os.environ.get(START_METHOD), None, (), {})

    return run


def test_workers_are_spawned_once_the_runtime_is_up(start):
    assert start(in_use=True) == "spawn"
    assert START_METHOD not in os.environ, "another engine of this process keeps the user's own choice"


def test_the_default_stays_before_that(start):
    assert start(in_use=False) is None


def test_the_users_own_choice_wins(start, monkeypatch):
    monkeypatch.setenv(START_METHOD, "forkserver")
    assert start(in_use=True) == "forkserver"


@pytest.mark.engine
def test_it_asks_torch():
    import torch

    assert fork_after_cuda.accelerator_in_use() == torch.cuda.is_initialized()
