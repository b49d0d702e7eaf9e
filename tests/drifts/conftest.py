"""Real runs of the generator in processes of their own: with the whole shim, and without single drifts.

A drift's test first shows the recorded symptom without the fix, then that the same script passes with it. The run with
the whole shim is one for all drifts.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess

import pytest

from tests.support import run_python

SCRIPT = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator
    prompts = {prompts}
    generator = VllmHiddenStatesGenerator({model!r}, [0, 2], {arguments})
    for _ in range(2):
        results = generator.generate(prompts)
    print("LENGTHS", [r["hidden_states"][0].shape[0] for r in results])
"""
PROMPTS = "[[1 + i % 9] * n for i, n in enumerate([3, 70, 1, 33])]"


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    from speculators_compat.testing import make_model

    return make_model("llama", tmp_path_factory.mktemp("drifts") / "llama", num_hidden_layers=4)


@pytest.fixture(scope="session")
def tiny_kimi(tmp_path_factory):
    from speculators_compat.testing import make_model

    return make_model("kimi_k25", tmp_path_factory.mktemp("drifts") / "kimi", num_hidden_layers=4)


@pytest.fixture(scope="session")
def run_generator(tiny_llama):
    """Run the generator twice on four prompts without the named drifts."""

    def run(*without: str, model=None, arguments="max_model_len=128", prompts=PROMPTS, **env: str):
        code = SCRIPT.format(model=str(model or tiny_llama), arguments=arguments, prompts=prompts)
        return run_python(code, {"SPECULATORS_COMPAT_DISABLE": ",".join(without), **env})

    return run


@pytest.fixture(scope="session")
def healthy(run_generator) -> subprocess.CompletedProcess[str]:
    """The same script with every drift on."""
    done = run_generator()
    assert done.returncode == 0, done.stderr[-3000:]
    assert "LENGTHS [3, 70, 1, 33]" in done.stdout
    return done


@pytest.fixture(scope="session")
def speculators_version() -> str:
    return importlib.metadata.version("speculators")


@pytest.fixture(scope="session")
def states() -> dict[str, str]:
    """State of every drift once speculators' generator is imported, from one process."""
    done = run_python(
        "import speculators_compat, speculators.data_generation, json\n"
        "print('STATES', json.dumps({o.drift.id: o.state.value for o in speculators_compat.outcomes()}))"
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("STATES ")), None)
    assert line, done.stderr[-3000:]
    return json.loads(line.removeprefix("STATES "))


@pytest.fixture
def only_on(speculators_version, states):
    """Where a drift does not exist in this release of speculators, show that the shim says so."""

    def check(drift_id: str, prefix: str) -> bool:
        if speculators_version.startswith(prefix):
            return True
        # A worker's drift waits in the parent, which never imports the worker's module.
        assert states[drift_id] in ("not needed", "waiting")
        return False

    return check
