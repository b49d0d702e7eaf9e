import pytest

from tests.support import run_python

pytestmark = pytest.mark.engine

CODE = """
import speculators_compat, vllm.utils
before = list(vllm.utils.__path__)
from speculators.data_generation import vllm_hidden_states_generator as upstream
print("FOUND", upstream.get_hash_fn_by_name is vllm.utils.get_hash_fn_by_name)
speculators_compat.deactivate()
print("RESTORED", list(vllm.utils.__path__) == before)
"""


def test_symptom_and_fix(needed):
    if needed("hashing_module"):
        broken = run_python(CODE, {"SPECULATORS_COMPAT_DISABLE": "hashing_module"})
        assert "No module named 'vllm.utils.hashing'" in broken.stderr
        done = run_python(CODE)
        assert "FOUND True" in done.stdout, done.stderr
        assert "RESTORED True" in done.stdout
        assert "was imported before" not in done.stderr, "a vLLM that is there already is not a late import"
