import pytest

pytestmark = pytest.mark.engine

#: Less than max_model_len, which is 128.
BUDGET = 64


def test_symptom_and_fix(needed, run_generator):
    if needed("chunked_prefill"):
        done = run_generator("chunked_prefill", max_num_batched_tokens=BUDGET)
        assert "max_num_batched_tokens (64) is smaller than max_model_len (128)" in done.error
        mended = run_generator(max_num_batched_tokens=BUDGET)
        assert mended.lengths == [3, 70, 1, 33], mended.error
