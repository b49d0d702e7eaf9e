import pytest

from speculators_compat.drifts.int4_experts_on_cpu import DRIFT
from speculators_compat.testing import make_int4

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]


def test_symptom_without_and_refusal_with(run_generator, tiny_kimi, tmp_path, capfd):
    model = make_int4(tiny_kimi, tmp_path / "int4")
    done = run_generator(DRIFT.id, model=model, trust_remote_code=True)
    assert done.lengths is None
    out, err = capfd.readouterr()
    assert DRIFT.symptom in out + err + done.error  # a worker's own message, where the worker fails
    done = run_generator(model=model, trust_remote_code=True)
    assert "W4A16 pack-quantized experts in groups of 32" in done.error
    assert "UsageError" in done.error
    out, err = capfd.readouterr()
    assert "Initializing executor" not in out + err
