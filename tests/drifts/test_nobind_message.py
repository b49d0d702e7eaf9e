import os
from types import SimpleNamespace

import pytest

from speculators_compat.drifts.nobind_message import _parsed


def fails() -> None:
    raise IndexError("list index out of range")


def test_only_the_report_of_ranks_that_are_bound_to_nothing_may_fail():
    _parsed(fails, SimpleNamespace(skip_setup=True), (), {})
    with pytest.raises(IndexError):
        _parsed(fails, SimpleNamespace(skip_setup=False), (), {})


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator):
    if needed("nobind_message"):
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind", "tests/conftest.py sets it"
        done = run_generator("nobind_message")
        assert "IndexError: list index out of range" in done.error
        assert "_parse_omp_threads_bind_env" in done.error
        mended = run_generator()
        assert mended.lengths == [3, 70, 1, 33], mended.error
