import pytest

from speculators_compat.drifts.device_name_without_accelerator import DRIFT
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_a_name_with():
    import torch
    from speculators.data_generation import config_generator

    if torch.accelerator.is_available():
        pytest.skip("upstream's own path needs no fix where there is an accelerator (call_site in the record)")
    with shim(without=DRIFT.id), pytest.raises(RuntimeError) as error:
        config_generator._get_gpu_info()
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    with shim():
        assert config_generator._get_gpu_info() == "CPU ONLY"
