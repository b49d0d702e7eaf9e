import os
from types import SimpleNamespace

import pytest

from speculators_compat.drifts.nobind_threads import BIND, _in_its_words


@pytest.fixture
def start(monkeypatch):
    config = SimpleNamespace(parallel_config=SimpleNamespace(world_size=2))

    def run(asked: str) -> str:
        monkeypatch.setenv(BIND, asked)
        seen = _in_its_words(lambda vllm_config: os.environ[BIND], None, (), {"vllm_config": config})
        assert os.environ[BIND] == asked, "another engine of this process reads it as it was"
        return seen

    return run


def test_nobind_is_said_in_the_workers_words_one_for_each_rank(start):
    assert start("nobind") == "all|all"


def test_what_else_is_asked_stays(start):
    assert start("0-1|2-3") == "0-1|2-3"


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator, capfd):
    if needed("nobind_threads"):
        assert os.environ[BIND] == "nobind", "tests/conftest.py sets it"
        done = run_generator("nobind_threads")
        assert "WorkerProc initialization failed" in done.error
        out, err = capfd.readouterr()
        assert "unparseable cpu description `nobind'" in out + err
        mended = run_generator(tensor_parallel_size=2)
        assert mended.lengths == [3, 70, 1, 33], mended.error
