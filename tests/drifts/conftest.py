"""Real runs of the generator, with the whole shim and without single drifts.

A drift's test first shows the recorded symptom without the fix, then that the same calls pass with it. The parent's
imports take longer than an engine's start, so the runs share this process: the shim is undone and redone without the
drift, and the spawned workers read the same switch.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speculators_compat.drifts import catalogue
from tests.support import KIMI_REASON, applies_here, kimi_runs, run_python, shim

#: Shorter than a block of 16, longer than several, one token.
PROMPTS = [[1 + i % 9] * n for i, n in enumerate([3, 70, 1, 33])]


@dataclass(frozen=True)
class Run:
    """What two calls of ``generate`` did: rows of each result, or the traceback."""

    lengths: list[int] | None
    error: str


def _generate(model: Path, prompts: list[list[int]], options: dict[str, Any]) -> Run:
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    generator = None
    try:
        generator = VllmHiddenStatesGenerator(str(model), [0, 2], **options)
        for _ in range(2):
            results = generator.generate(prompts)
        return Run([result["hidden_states"][0].shape[0] for result in results], "")
    except Exception:
        return Run(None, traceback.format_exc())
    finally:
        with contextlib.suppress(AttributeError):  # closed already, or never started
            generator.executor.shutdown()
        generator = None
        gc.collect()  # a constructor that failed half-way leaves its executor to __del__


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    from speculators_compat.testing import make_model

    return make_model("llama", tmp_path_factory.mktemp("drifts") / "llama", num_hidden_layers=4)


@pytest.fixture(scope="session")
def tiny_kimi(tmp_path_factory):
    from speculators_compat.testing import make_model

    if not kimi_runs():
        pytest.skip(KIMI_REASON)
    return make_model("kimi_k25", tmp_path_factory.mktemp("drifts") / "kimi", num_hidden_layers=4)


@pytest.fixture(scope="session")
def training_run(tmp_path_factory):
    """A small run that is ready to train."""
    from tests.training_runs import make_run, make_verifier

    folder = tmp_path_factory.mktemp("training")
    with shim():
        return make_run(folder / "base", make_verifier(folder / "kimi"), epochs=1)


@pytest.fixture(scope="session")
def run_generator(tiny_llama):
    """Run the generator twice without the named drifts."""

    def run(*disabled: str, model: Path | None = None, prompts: Any = PROMPTS, **options: Any) -> Run:
        with shim(without=",".join(disabled)):
            return _generate(model or tiny_llama, prompts, {"max_model_len": 128, **options})

    return run


@pytest.fixture(scope="session")
def healthy(run_generator) -> Run:
    """The same calls with every drift on."""
    done = run_generator()
    assert done.lengths == [3, 70, 1, 33], done.error
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
def needed(states):
    """Whether the installed pair needs a drift by its record; where it does not, show that the shim says so."""

    def check(drift_id: str) -> bool:
        if applies_here(next(drift for drift in catalogue() if drift.id == drift_id)):
            return True
        # A worker's drift waits in the parent, which never imports the worker's module.
        assert states[drift_id] in ("not needed", "waiting")
        return False

    return check
