"""A script of a user's own, which knows nothing of the shim, on a real engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

SCRIPT = """
import sys
from speculators.data_generation import VllmHiddenStatesGenerator

if __name__ == "__main__":
    generator = VllmHiddenStatesGenerator(sys.argv[1], layer_ids=[1, 3], max_model_len=256)
    results = generator.generate([[1 + i % 7] * (1 + 5 * i) for i in range(12)])
    print("ROWS", [len(result["input_ids"]) for result in results])
    print("STATES", [tuple(state.shape) for state in results[11]["hidden_states"]])
"""


def test_unmodified_script_gets_its_states(tmp_path, models):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    line = [sys.executable, "-m", "speculators_compat", "exec", str(script)]
    result = subprocess.run(
        [*line, str(models("llama", num_hidden_layers=6))],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    assert f"ROWS {[1 + 5 * i for i in range(12)]}" in result.stdout
    assert "STATES [(56, 128), (56, 128)]" in result.stdout
