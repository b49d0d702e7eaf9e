import pytest

from tests.support import run_python

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]

CODE = """
import speculators_compat
from speculators.data_generation import vllm_hidden_states_generator as upstream
config = upstream.SchedulerConfig(max_model_len=64, is_encoder_decoder=False)
print("ASYNC", config.async_scheduling)
"""


def test_symptom_and_fix(needed):
    """None lets VllmConfig switch it on wherever the platform can; a CPU never can, so the config is what is asked."""
    if needed("async_scheduling"):
        assert "ASYNC None" in run_python(CODE, {"SPECULATORS_COMPAT_DISABLE": "async_scheduling"}).stdout
        assert "ASYNC False" in run_python(CODE).stdout
