import pytest

from speculators_compat.drifts.block_mask_compile_without_accelerator import DRIFT
from tests.support import applies, run_python

pytestmark = [pytest.mark.engine, applies(DRIFT)]

MASK = """
import speculators_compat
from speculators.models.dflash import core
mask = core._compiled_create_block_mask(lambda b, h, q, k: q >= k, B=None, H=None, Q_LEN=256, KV_LEN=256, device="cpu")
print("MASK", mask.shape)
"""


def test_symptom_without_and_a_mask_with(tmp_path):
    """On a machine without a C++ compiler."""
    env = {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PATH": "/nowhere"}
    without = run_python(MASK, env={**env, "SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert DRIFT.symptom.partition(": ")[2] in without.stderr, without.stderr[-2000:]
    done = run_python(MASK, env=env)
    assert "MASK" in done.stdout, done.stderr[-2000:]
