import pytest

from tests.support import run_python

pytestmark = pytest.mark.engine

BAD = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation import VllmHiddenStatesGenerator
    for arguments in ({cases}):
        try:
            VllmHiddenStatesGenerator({model!r}, **arguments)
        except (ValueError, TypeError) as error:
            print(type(error).__name__, error)
"""


def test_symptom_and_fix(run_generator):
    done = run_generator("generator_options", "hidden_states_capture", dtype="float32")
    assert "got an unexpected keyword argument 'dtype'" in done.error
    assert run_generator(dtype="float32").lengths == [3, 70, 1, 33]


def test_bad_arguments_are_refused_before_the_engine_starts(tiny_llama):
    cases = {
        "dict(layer_ids=[0, 0])": "layer_ids must name each layer once",
        "dict(layer_ids=[])": "layer_ids must be a non-empty list",
        "dict(layer_ids=['1'])": "layer_ids must be a non-empty list of whole numbers",
        "dict(layer_ids=[99])": "Layer index 99 out of bounds",
        "dict(layer_ids=[-1])": "Layer index -1 out of bounds",
        "dict(overlong='squeeze')": "overlong must be one of truncate, error",
        "dict(max_num_batched_tokens=0)": "max_num_batched_tokens must be a positive number",
        "dict(no_such_option=1)": "no_such_option",
    }
    done = run_python(BAD.format(cases=", ".join(cases), model=str(tiny_llama)))
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line for line in done.stdout.splitlines() if line.startswith(("UsageError", "ValueError", "TypeError"))]
    assert len(said) == len(cases)
    for line, wanted in zip(said, cases.values(), strict=True):
        assert wanted in line
    assert "Initializing executor" not in done.stdout + done.stderr, "the engine was touched"
