import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(run_generator, tiny_kimi):
    done = run_generator("tokenizer_trust_remote_code", model=tiny_kimi)
    assert "trust_remote_code=True" in done.error
    assert "custom code" in done.error
    assert "AutoTokenizer" in done.error or "tokenization_auto" in done.error
    mended = run_generator(model=tiny_kimi)
    assert mended.lengths == [3, 70, 1, 33], mended.error
