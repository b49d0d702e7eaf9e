from types import SimpleNamespace

import pytest

from speculators_compat.drifts.two_phase_execution import TwoPhaseExecutor


@pytest.mark.engine
def test_symptom_and_fix(needed, run_generator, healthy, speculators_version):
    if needed("two_phase_execution") and speculators_version.startswith("0.3"):
        done = run_generator("hidden_states_capture", "two_phase_execution", prompts=[[1, 2, 3]])
        assert "sample_tokens() must be called after execute_model()" in done.error


@pytest.mark.engine
def test_our_loop_needs_it_and_says_so(run_generator):
    done = run_generator("two_phase_execution")
    assert "[hidden_states_capture]" in done.error
    assert "needs the drift two_phase_execution" in done.error


def test_a_step_is_completed_once_and_handed_out_again():
    calls = []
    inner = SimpleNamespace(
        execute_model=calls.append,
        sample_tokens=lambda grammar: calls.append(grammar) or "output",
    )
    executor = TwoPhaseExecutor(inner)
    assert executor.execute_model("step") == "output"
    assert executor.sample_tokens("output") == "output", "speculators 0.4 samples by itself"
    assert calls == ["step", None]


def test_a_step_that_is_complete_is_not_sampled():
    executor = TwoPhaseExecutor(SimpleNamespace(execute_model=lambda scheduled: "empty batch"))
    assert executor.execute_model("step") == "empty batch"
