import pytest

from speculators_compat.drifts.cpu_moe_activation import DRIFT
from speculators_compat.testing import make_kimi_k25

pytestmark = pytest.mark.engine


@pytest.fixture
def uneven_experts(tmp_path):
    """Experts that no grouped kernel takes, so that the faulty function runs on every CPU.

    Where the CPU has AVX-512 and no AMX, sizes in steps of 32 go to a kernel that computes the activation itself:
    https://github.com/vllm-project/vllm/blob/v0.20.2/vllm/model_executor/layers/fused_moe/cpu_fused_moe.py#L274
    """
    return make_kimi_k25(tmp_path / "kimi", moe_intermediate_size=24)


def test_symptom_and_fix(needed, run_generator, uneven_experts, capfd):
    if needed("cpu_moe_activation"):
        done = run_generator(DRIFT.id, model=uneven_experts)
        assert done.lengths is None
        out, err = capfd.readouterr()
        assert "Current vLLM config is not set" in out + err + done.error  # the worker's own message
        done = run_generator(model=uneven_experts)
        assert done.lengths == [3, 70, 1, 33], done.error
