"""doctor beside a real vLLM: drifts are settled, and a real worker says what became of the shim in its process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine


def test_a_worker_reports_its_own_shim():
    command = [sys.executable, "-m", "speculators_compat", "doctor", "--workers", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    found = json.loads(done.stdout)  # whatever vLLM logs, standard output is the report alone
    assert found["workers"]["error"] == "", found["workers"]["log"]
    (worker,) = found["workers"]["workers"]
    assert worker["rank"] == 0
    assert worker["shim"]["active"]
    # Two processes: each was asked, and neither has a drift that its range does not allow.
    states = {name: {drift["id"]: drift["state"] for drift in drifts} for name, drifts in (
        ("main", found["workers"]["main"]), ("worker", worker["drifts"]), ("doctor", found["drifts"])
    )}  # fmt: skip
    assert states["main"].keys() == states["worker"].keys() == states["doctor"].keys()
    assert "blocked" not in {state for drifts in states.values() for state in drifts.values()}
    assert states["main"]["hidden_states_capture"] == "applied"
    assert done.returncode == (1 if found["pair"]["state"] == "failed" else 0), found["reasons"]
