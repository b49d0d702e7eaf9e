import pytest

from speculators_compat.drifts.cpu_moe_activation import DRIFT

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, tiny_kimi, capfd):
    if needed("cpu_moe_activation"):
        done = run_generator(DRIFT.id, model=tiny_kimi)
        assert done.lengths is None
        out, err = capfd.readouterr()
        assert "Current vLLM config is not set" in out + err + done.error  # the worker's own message
        done = run_generator(model=tiny_kimi)
        assert done.lengths == [3, 70, 1, 33], done.error
