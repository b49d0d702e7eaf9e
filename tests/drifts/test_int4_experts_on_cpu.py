"""INT4 experts on the CPU engine: the worker's failure, and one message before any worker."""

from types import SimpleNamespace

import pytest

from speculators_compat.drifts.int4_experts_on_cpu import DRIFT, scheme_of_experts

WEIGHTS = {"num_bits": 4, "group_size": 32, "symmetric": True, "strategy": "group", "type": "int"}


@pytest.mark.engine
@pytest.mark.default_pair
def test_symptom_without_and_refusal_with(run_generator, tiny_kimi, tmp_path, capfd):
    from speculators_compat.testing import make_int4

    model = make_int4(tiny_kimi, tmp_path / "int4", tmp_path / "twin")
    done = run_generator(DRIFT.id, model=model, trust_remote_code=True)
    assert done.lengths is None
    out, err = capfd.readouterr()
    said = out + err + done.error  # a worker's own message, where the worker fails
    assert DRIFT.symptom in said or "No WNA16 MoE backend supports the deployment configuration" in said  # from 0.24 on
    done = run_generator(model=model, trust_remote_code=True)
    assert "W4A16 pack-quantized experts in groups of 32" in done.error
    assert "UsageError" in done.error
    out, err = capfd.readouterr()
    assert "Initializing executor" not in out + err
    done = run_generator(model=tmp_path / "twin", trust_remote_code=True)
    assert done.lengths, f"the same values unpacked: {done.error}"


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
