import pytest

from tests.support import run_python

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]

#: One rank's default swap space is more than this host has, whatever host the test runs on.
CODE = """
import speculators_compat
import vllm.config.cache as cache
cache.get_cpu_memory = lambda: 4 << 30
if __name__ == "__main__":
    from speculators.data_generation import vllm_hidden_states_generator as upstream
    config = upstream.CacheConfig(block_size=16)
    config.verify_with_parallel_config(upstream.ParallelConfig())
    print("SWAP", config.swap_space)
"""


def test_symptom_and_fix(needed):
    if needed("swap_space"):
        without = run_python(CODE, {"SPECULATORS_COMPAT_DISABLE": "swap_space"})
        assert "Too large swap space" in without.stderr
        assert "SWAP 0" in run_python(CODE).stdout
