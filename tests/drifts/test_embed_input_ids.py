import pytest

pytestmark = pytest.mark.engine

#: Upstream's own capture, which this drift mends for whoever switches ours off.
UPSTREAM = ("hidden_states_capture",)


def test_symptom_and_fix(needed, run_generator):
    if needed("embed_input_ids"):
        done = run_generator(*UPSTREAM, "embed_input_ids")
        assert "'LlamaModel' object has no attribute 'get_input_embeddings'" in done.error
        mended = run_generator(*UPSTREAM, prompts=[[1, 2, 3]])
        assert mended.lengths == [3], mended.error
