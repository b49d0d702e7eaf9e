import pytest

from speculators_compat.drifts.worker_block_size import DRIFT
from tests.support import run_python, vllm_is

pytestmark = pytest.mark.engine

CODE = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation import vllm_hidden_states_generator as upstream
    print("PINNED", upstream.CacheConfig(block_size=16).user_specified_block_size)
"""


def test_the_block_size_is_pinned_without_and_left_open_with(needed):
    if needed("worker_block_size"):
        assert "PINNED True" in run_python(CODE, {"SPECULATORS_COMPAT_DISABLE": DRIFT.id}).stdout
        assert "PINNED False" in run_python(CODE).stdout


def test_a_size_that_the_backend_cannot_use_is_refused_without(needed, run_generator, healthy, capfd):
    """vLLM 0.32's CPU attention takes multiples of 32 only."""
    import torch

    if needed("worker_block_size") and vllm_is("0.32.0", None) and not torch.accelerator.is_available():
        done = run_generator(DRIFT.id)
        assert done.lengths is None
        out, err = capfd.readouterr()
        assert DRIFT.symptom in out + err + done.error  # the worker's own message
