"""INT4 experts on the CPU engine: the worker's failure, and one message before any worker."""

from types import SimpleNamespace

import pytest

from speculators_compat.drifts.int4_experts_on_cpu import scheme_of_experts
from tests.support import run_python

CODE = """
import speculators_compat
if __name__ == "__main__":
    from speculators.data_generation import VllmHiddenStatesGenerator
    with VllmHiddenStatesGenerator({model!r}, [0, 1], max_model_len=64, dtype={dtype!r}) as generator:
        print("STATES", len(generator.generate([[5, 6, 7, 8]])[0]["hidden_states"]))
"""
WEIGHTS = {"num_bits": 4, "group_size": 32, "symmetric": True, "strategy": "group", "type": "int"}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    from speculators_compat.testing import make_int4, make_model

    root = tmp_path_factory.mktemp("int4")
    make_model("kimi_k25", root / "source", num_hidden_layers=2, num_experts=4)
    make_int4(root / "source", root / "int4", root / "twin")
    return root


def run(model, disable="", dtype="bfloat16"):
    return run_python(CODE.format(model=str(model), dtype=dtype), {"SPECULATORS_COMPAT_DISABLE": disable})


@pytest.mark.engine
@pytest.mark.default_pair
def test_symptom_and_refusal(checkpoints):
    failed = run(checkpoints / "int4", "int4_experts_on_cpu")
    assert failed.returncode != 0
    assert "gptq_marlin_repack" in failed.stdout + failed.stderr
    refused = run(checkpoints / "int4")
    assert refused.returncode != 0
    message = refused.stderr.strip().splitlines()[-1]
    assert "UsageError" in message
    for named in ("W4A16 pack-quantized experts in groups of 32", "0.16.0", "on a CPU", "GPU"):
        assert named in message
    assert "Worker" not in refused.stdout + refused.stderr


@pytest.mark.engine
@pytest.mark.default_pair
def test_the_same_values_unpacked_are_captured(checkpoints):
    done = run(checkpoints / "twin")
    assert "STATES 2" in done.stdout, done.stderr[-3000:]


def model_config(text=None, quantised=None, nested=False):
    text = SimpleNamespace(**({"n_routed_experts": 8} if text is None else text))
    wrapper = SimpleNamespace()
    (text if nested else wrapper).quantization_config = quantised
    return SimpleNamespace(hf_config=wrapper, hf_text_config=text)


def quantised(**changes):
    group = {"weights": WEIGHTS, "input_activations": None}
    groups = {"config_groups": {"group_0": group}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", **groups, **changes}


@pytest.mark.parametrize("nested", [False, True])
def test_the_scheme_is_found_in_either_config(nested):
    assert scheme_of_experts(model_config(quantised=quantised(), nested=nested)) == WEIGHTS


@pytest.mark.parametrize(
    "config",
    [
        model_config(),
        model_config(text={"n_routed_experts": None}, quantised=quantised()),
        model_config(quantised=quantised(quant_method="fp8")),
        model_config(quantised=quantised(format="float-quantized")),
        model_config(quantised=quantised(config_groups={"g": {"weights": {**WEIGHTS, "num_bits": 8}}})),
        model_config(
            quantised=quantised(config_groups={"g": {"weights": WEIGHTS, "input_activations": {"num_bits": 8}}})
        ),
    ],
    ids=["none", "dense", "fp8", "float", "int8", "w4a8"],
)
def test_other_checkpoints_are_left_alone(config):
    assert scheme_of_experts(config) is None
