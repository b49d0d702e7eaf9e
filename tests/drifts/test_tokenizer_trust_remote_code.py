import pytest

from tests.support import kimi_runs, transformers_knows

pytestmark = pytest.mark.engine


def test_symptom_and_fix(run_generator, tmp_path):
    from speculators_compat.testing import make_model

    model = make_model("kimi_k25", tmp_path / "kimi", num_hidden_layers=4)
    known = transformers_knows("kimi_k25")
    done = run_generator("tokenizer_trust_remote_code", model=model)
    if known:
        assert done.lengths == [3, 70, 1, 33], done.error
    else:
        assert "trust_remote_code=True" in done.error
        assert "custom code" in done.error
        assert "AutoTokenizer" in done.error or "tokenization_auto" in done.error
    mended = run_generator(model=model)
    if kimi_runs():
        assert mended.lengths == [3, 70, 1, 33], mended.error
    else:
        assert "kimi" in mended.error.lower()
        assert "tokenization_auto" not in mended.error, "past the tokenizer, vLLM refuses the model"
