import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(needed, run_generator):
    if needed("single_reply_rpc"):
        upstream = {"prompts": [[1, 2, 3]]}
        done = run_generator("hidden_states_capture", "single_reply_rpc", **upstream)
        assert "Boolean value of Tensor with more than one value is ambiguous" in done.error
        mended = run_generator("hidden_states_capture", **upstream)
        assert mended.lengths == [3], mended.error
