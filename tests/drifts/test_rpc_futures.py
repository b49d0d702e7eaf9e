from types import SimpleNamespace

import pytest

from speculators_compat.drifts.rpc_futures import FutureExecutor


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator, healthy):
    """Our own loop needs it, and says so where it is off."""
    if needed("rpc_futures"):
        assert "needs the drift rpc_futures" in run_generator("rpc_futures").error


def test_a_call_that_is_not_waited_for_answers_with_a_future():
    calls = []

    def rpc(method, args=()):
        calls.append((method, args))
        return ["reply"]

    executor = FutureExecutor(SimpleNamespace(collective_rpc=rpc))
    assert executor.collective_rpc("name", args=(1,)) == ["reply"]
    assert executor.collective_rpc("name", args=(2,), non_block=True).result() == ["reply"]
    assert calls == [("name", (1,)), ("name", (2,))]
