"""The typed configuration: unknown keys, wrong values, defaults, and the shipped example."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest
import yaml

from speculators_compat import versions
from speculators_compat.drift import UsageError
from speculators_compat.layers import check_layer_ids, default_layer_ids, to_vllm_layer_ids
from speculators_compat.pipeline.config import RunConfig, load_config, round_up
from speculators_compat.sample_files import FORMS

ROOT = Path(__file__).parents[2]
MINIMAL = {"model": "some/model", "output": "run", "prepare": {"data": "sharegpt"}}


def write(folder: Path, content: object) -> Path:
    path = folder / "config.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_minimal_configuration_has_upstreams_defaults(tmp_path):
    config = load_config(write(tmp_path, MINIMAL))
    assert config.trust_remote_code is False
    assert config.layer_ids is None
    assert config.vocab.draft_vocab_size == 32000
    assert config.extract.prompts_per_call == 64
    assert (config.train.ttt_steps, config.train.lr) == (3, 1e-4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({**MINIMAL, "modle": 1}, "modle: unknown key"),
        ({**MINIMAL, "extract": {"tensor_parallel": 2}}, "extract.tensor_parallel: unknown key"),
        ({**MINIMAL, "train": {"draft": {"heads": 2}}}, "train.draft.heads: unknown key"),
        ({"output": "run", "prepare": {"data": "x"}}, "model: Field required"),
        ({**MINIMAL, "seq_length": 1}, "seq_length: Input should be greater"),
        ({**MINIMAL, "extract": {"dtype": "int4"}}, "extract.dtype"),
        ({**MINIMAL, "train": {"total_seq_len": 128}}, "must hold one sample"),
        ([1, 2], "holds list"),
        ("a: [", "must be YAML"),
    ],
)
def test_bad_configuration_is_one_error_that_names_the_key(tmp_path, content, expected):
    with pytest.raises(UsageError) as error:
        load_config(write(tmp_path, content))
    assert expected in str(error.value)
    assert "docs/pipeline.md" in str(error.value)


def test_every_problem_is_named_at_once(tmp_path):
    with pytest.raises(UsageError, match=r"train\.epochs: .*; modle: unknown key"):
        load_config(write(tmp_path, {**MINIMAL, "modle": 1, "train": {"epochs": 0}}))


def test_missing_file(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.yaml"):
        load_config(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(("tokens", "expected"), [(1, 128), (128, 128), (129, 256), (4096, 4096)])
def test_sequence_length_is_whole_blocks_of_the_mask(tokens, expected):
    assert round_up(tokens) == expected


def test_packed_length_defaults_to_the_sample_length_in_whole_blocks():
    config = RunConfig.model_validate({**MINIMAL, "seq_length": 300})
    assert config.total_seq_len == 384


def test_relative_model_folder_becomes_absolute_and_an_id_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    local = RunConfig.model_validate({**MINIMAL, "model": "model"})
    assert local.verifier == str(tmp_path / "model")
    assert RunConfig.model_validate(MINIMAL).verifier == "some/model"


def fields(model: type[pydantic.BaseModel], prefix: str = ""):
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")


def test_every_field_is_described_here_and_in_the_docs():
    page = (ROOT / "docs" / "pipeline.md").read_text()
    for name, field in fields(RunConfig):
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            continue
        assert field.description, name
        assert f"| `{name}` |" in page, f"docs/pipeline.md lacks {name}"
        assert field.description.replace("|", "\\|") in page, f"docs/pipeline.md describes {name} otherwise"


def test_shipped_kimi_configuration():
    config = load_config(ROOT / "configs" / "kimi-k2.5.yaml")
    assert config.layer_ids == default_layer_ids(61) == [2, 30, 58, 60]
    assert config.extract.tensor_parallel_size == 8
    assert config.trust_remote_code is True
    assert (config.train.draft.num_attention_heads, config.train.draft.head_dim) == (64, 128)


def test_layer_conventions():
    check_layer_ids([2, 30, 58, 60], 61)
    assert to_vllm_layer_ids([2, 30, 58]) == [3, 31, 59]
    assert default_layer_ids(7) == [2, 3, 4, 6]


@pytest.mark.parametrize(
    "layer_ids",
    [
        [30, 2, 58, 60],
        [2, 30, 58, 59],
        [2, 2, 58, 60],
        [-1, 30, 58, 60],
        [2, 30, 58, 61],
        [60],
        [],
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_layers_that_cannot_be_trained_or_served_are_refused(layer_ids, form):
    with pytest.raises(UsageError, match="61 layers"):
        check_layer_ids(layer_ids, 61, form)


@pytest.mark.parametrize("layer_ids", [[2, 60], [2, 30, 60], [1, 2, 30, 58, 60]])
def test_other_numbers_of_layers_are_for_the_trainers_of_0_5_and_later(layer_ids, monkeypatch):
    installed = {"speculators": versions.Installed("speculators", "speculators", "0.9.0")}
    monkeypatch.setattr(versions, "installed", installed.get)
    check_layer_ids(layer_ids, 61)
    installed["speculators"] = versions.Installed("speculators", "speculators", "0.4.0.1")
    with pytest.raises(UsageError, match=r"must be four .* fc of speculators 0\.3 and 0\.4 takes three"):
        check_layer_ids(layer_ids, 61)


def test_eagles_kind_before_0_7_takes_three_inputs(monkeypatch):
    installed = {"speculators": versions.Installed("speculators", "speculators", "0.6.0")}
    monkeypatch.setattr(versions, "installed", installed.get)
    check_layer_ids([2, 60], 61, algorithm="dflash")
    for algorithm in ("eagle3", "peagle"):
        with pytest.raises(UsageError, match=rf"must be four .* fc of {algorithm} in speculators 0\.6\.0 takes three"):
            check_layer_ids([2, 60], 61, algorithm=algorithm)
    installed["speculators"] = versions.Installed("speculators", "speculators", "0.7.0")
    check_layer_ids([2, 60], 61, algorithm="eagle3")


def test_default_layers_of_a_small_model_are_refused_by_name():
    with pytest.raises(UsageError, match=r"\[2, 3, 3, 5\]"):
        check_layer_ids(default_layer_ids(6), 6)
