import pytest

pytestmark = pytest.mark.engine


def test_symptom_without_and_refusal_with(needed, run_generator, tmp_path, capfd):
    from speculators_compat.testing import make_model

    if needed("kimi_k25_on_cpu"):
        model = make_model("kimi_k25", tmp_path / "kimi", num_hidden_layers=4)
        done = run_generator("kimi_k25_on_cpu", model=model)
        assert done.lengths is None
        out, err = capfd.readouterr()
        assert "Found no NVIDIA driver" in out + err + done.error
        done = run_generator(model=model)
        assert "Kimi-K2.5 on a CPU needs vLLM 0.16 or newer" in done.error
        out, err = capfd.readouterr()
        assert "Initializing executor" not in out + err
