import pytest

pytestmark = pytest.mark.engine


def test_symptom_and_fix(run_generator, tiny_kimi):
    done = run_generator("tokenizer_trust_remote_code", model=tiny_kimi)
    assert "trust_remote_code=True" in done.stderr
    assert "custom code" in done.stderr
    assert "AutoTokenizer" in done.stderr or "tokenization_auto" in done.stderr
    mended = run_generator(model=tiny_kimi)
    assert "LENGTHS [3, 70, 1, 33]" in mended.stdout, mended.stderr[-3000:]
