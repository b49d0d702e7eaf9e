"""The INT4 fixture: names, shapes and values of a compressed-tensors W4A16 checkpoint, experts only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from speculators_compat.testing import make_int4, make_model
from speculators_compat.testing.checkpoint import read_tensors
from speculators_compat.testing.int4 import EXPERT, GROUP_SIZE

pytestmark = pytest.mark.default_pair


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("int4")
    source = make_model("kimi_k25", root / "source", num_hidden_layers=2, num_experts=4)
    make_int4(source, root / "int4", root / "twin")
    return {name: root / name for name in ("source", "int4", "twin")}


def test_only_routed_experts_are_packed(folders):
    source, packed = read_tensors(folders["source"]), read_tensors(folders["int4"])
    experts = {name for name in source if EXPERT.search(name)}
    assert len(experts) == 4 * 3  # one routed layer
    assert not experts & set(packed)
    added = {name.removesuffix("weight") + part for name in experts for part in
             ("weight_packed", "weight_scale", "weight_shape")}  # fmt: skip
    assert set(packed) == (set(source) - experts) | added
    assert all(torch.equal(source[name], packed[name]) for name in set(source) - experts)


def test_shapes_and_dtypes_are_the_formats(folders):
    source, packed = read_tensors(folders["source"]), read_tensors(folders["int4"])
    for name in filter(EXPERT.search, source):
        rows, columns = source[name].shape
        prefix = name.removesuffix("weight")
        found = {part: packed[f"{prefix}weight_{part}"] for part in ("packed", "scale", "shape")}
        assert (found["packed"].shape, found["packed"].dtype) == ((rows, columns // 8), torch.int32)
        assert (found["scale"].shape, found["scale"].dtype) == ((rows, columns // GROUP_SIZE), torch.bfloat16)
        assert found["shape"].tolist() == [rows, columns]


def test_the_twin_has_the_packed_values(folders):
    """Unpacked here bit by bit, not by the package that packed them."""
    source, packed, twin = (read_tensors(folders[name]) for name in ("source", "int4", "twin"))
    for name in filter(EXPERT.search, source):
        prefix = name.removesuffix("weight")
        words = packed[f"{prefix}weight_packed"].to(torch.int64) & 0xFFFFFFFF
        nibbles = torch.stack([(words >> (4 * place)) & 15 for place in range(8)], dim=-1).flatten(1) - 8
        scale = packed[f"{prefix}weight_scale"].float().repeat_interleave(GROUP_SIZE, dim=1)
        assert torch.equal(twin[name], nibbles.float() * scale)
        assert int(nibbles.min()) >= -8
        # Half a step is the rounding; the largest value of a group is 7.5 steps, or 7.53 once the scale is rounded to
        # bfloat16, and 7 is the largest integer.
        assert float(((twin[name] - source[name]).abs() / scale).max()) <= 0.53
        assert not torch.equal(twin[name], source[name])


def test_the_config_is_found_where_vllm_looks(folders):
    text = json.loads((folders["int4"] / "config.json").read_text())["text_config"]
    quantised = text["quantization_config"]
    assert (quantised["quant_method"], quantised["format"]) == ("compressed-tensors", "pack-quantized")
    weights = quantised["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"], weights["symmetric"]) == (4, GROUP_SIZE, True)
    assert "quantization_config" not in json.loads((folders["twin"] / "config.json").read_text())["text_config"]


@pytest.mark.parametrize(
    ("module", "ignored"),
    [
        ("language_model.lm_head", True),
        ("language_model.model.layers.1.self_attn.o_proj", True),
        ("language_model.model.layers.1.mlp.shared_experts.down_proj", True),
        ("language_model.model.layers.0.mlp.gate_proj", True),
        ("vision_tower.encoder.blocks.0.wqkv", True),
        ("mm_projector.proj.0", True),
        ("language_model.model.layers.1.mlp.experts.3.up_proj", False),
    ],
)
def test_what_is_ignored(module, ignored):
    import re

    from speculators_compat.testing.int4 import IGNORED

    assert any(re.match(entry.removeprefix("re:"), module) for entry in IGNORED) == ignored


def test_widths_that_do_not_fit_are_refused(tmp_path):
    source = make_model("kimi_k25", tmp_path / "source", num_hidden_layers=2, moe_intermediate_size=48)
    with pytest.raises(ValueError, match="multiples of 32"):
        make_int4(source, tmp_path / "int4")
    llama = make_model("llama", tmp_path / "llama", num_hidden_layers=1)
    with pytest.raises(ValueError, match="routed experts"):
        make_int4(llama, tmp_path / "int4")
