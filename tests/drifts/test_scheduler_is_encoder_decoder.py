import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(only_on, run_generator, healthy):
    if only_on("scheduler_is_encoder_decoder", "0.3"):
        done = run_generator("scheduler_is_encoder_decoder")
        assert "1 validation error for SchedulerConfig" in done.error
        assert "is_encoder_decoder" in done.error
        assert "Field required" in done.error
