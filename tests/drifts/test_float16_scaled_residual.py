import pytest

from tests.support import run_python

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]

CODE = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation import VllmHiddenStatesGenerator
    from speculators_compat.testing import reference_hidden_states
    prompts = [[5, 6, 7, 8, 9, 10, 11, 12]]
    with VllmHiddenStatesGenerator({model!r}, [0], max_model_len=64, dtype={dtype!r}) as generator:
        state = generator.generate(prompts)[0]["hidden_states"][0].float()
    expected = reference_hidden_states({model!r}, prompts, [0])[0][0]
    print("RATIO", float((expected.norm() / state.norm())))
"""


def ratio(model, dtype, disable=""):
    done = run_python(CODE.format(model=str(model), dtype=dtype), {"SPECULATORS_COMPAT_DISABLE": disable})
    line = next((line for line in done.stdout.splitlines() if line.startswith("RATIO ")), None)
    return (float(line.split()[1]) if line else None), done.stderr


def test_symptom_and_fix(tiny_kimi):
    scaled, stderr = ratio(tiny_kimi, "float16", "float16_scaled_residual")
    assert scaled is not None, stderr[-3000:]
    assert scaled == pytest.approx(2.827, rel=0.05), "the routed scaling factor of the model"
    refused, stderr = ratio(tiny_kimi, "float16")
    assert refused is None
    assert "in float16 vLLM divides its residual stream by routed_scaling_factor (2.827)" in stderr
    assert "Initializing executor" not in stderr
