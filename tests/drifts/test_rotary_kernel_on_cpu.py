import pytest

from tests.support import KIMI_REASON, kimi_runs, run_python

pytestmark = [
    pytest.mark.engine,
    pytest.mark.default_pair,
    pytest.mark.skipif(not kimi_runs(), reason=KIMI_REASON),
]

CODE = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation import VllmHiddenStatesGenerator
    from speculators_compat.testing import random_prompts, reference_hidden_states, relative_error
    prompts = random_prompts(256, [2, 40, 1], seed=1)
    with VllmHiddenStatesGenerator({model!r}, [0, 3], max_model_len=128, dtype="float32") as generator:
        results = generator.generate(prompts)
    reference = reference_hidden_states({model!r}, prompts, [0, 3])
    errors = [max(map(relative_error, r["hidden_states"], e)) for r, e in zip(results, reference)]
    print("ERRORS", *errors)
"""


@pytest.fixture(scope="session")
def kimi_without_yarn(tmp_path_factory):
    """Plain interleaved rotary: YaRN's class has no CPU kernel in vLLM 0.16.0 and takes the native path by itself."""
    from speculators_compat.testing import make_model

    return make_model("kimi_k25", tmp_path_factory.mktemp("rotary") / "kimi", num_hidden_layers=4, yarn=False)


def errors(model, disable=""):
    done = run_python(CODE.format(model=str(model)), {"SPECULATORS_COMPAT_DISABLE": disable})
    line = next((line for line in done.stdout.splitlines() if line.startswith("ERRORS")), None)
    assert line, done.stderr[-3000:]
    return [float(word) for word in line.split()[1:]], done.stderr + done.stdout


def test_symptom_and_fix(kimi_without_yarn):
    (two, forty, one), _ = errors(kimi_without_yarn, "rotary_kernel_on_cpu")
    assert min(two, forty) > 1e-2, "wrong for every prompt of more than one token"
    assert one < 2e-5, "position 0 is not rotated"
    mended, output = errors(kimi_without_yarn)
    assert max(mended) < 2e-5
    assert "rotary_kernel_on_cpu" in output, "it must say that it mended something"
    assert "interleaved" in output
