import pytest

from speculators_compat.drifts.datasets_video_reader import DRIFT
from tests.support import run_python

pytestmark = pytest.mark.engine

CODE = """
import json
import speculators_compat, speculators, torchvision
from datasets import Dataset
rows = Dataset.from_dict({"ids": [[1, 2], [3]]})
print("READ", rows.with_format("torch")[0]["ids"].tolist(), rows.with_format("numpy")[1]["ids"].tolist())
states = {o.drift.id: o.state.value for o in speculators_compat.outcomes()}
print("STATE", states["datasets_video_reader"])
"""


def test_symptom_and_fix():
    """Bound to torchvision: formatting fails without exactly where the probe says that the fix is needed."""
    done = run_python(CODE)
    assert "READ [1, 2] [3]" in done.stdout, done.stderr[-3000:]
    broken = run_python(CODE, {"SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert (DRIFT.symptom in broken.stderr) is ("STATE applied" in done.stdout)
    assert "STATE applied" in done.stdout or "STATE not needed" in done.stdout
