import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator, healthy):
    if needed("scheduler_is_encoder_decoder"):
        done = run_generator("scheduler_is_encoder_decoder")
        assert "1 validation error for SchedulerConfig" in done.error
        assert "is_encoder_decoder" in done.error
        assert "Field required" in done.error
