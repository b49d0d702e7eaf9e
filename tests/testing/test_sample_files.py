"""The two forms of a sample file: what is written, what a damaged or foreign file says, which release takes which."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from speculators_compat import sample_files
from speculators_compat.sample_files import FORMS, Outline, SampleError, form_of

pytestmark = pytest.mark.default_pair

PT, STATES = FORMS["pt"], FORMS["safetensors"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def sample(tokens: int, dtype: torch.dtype = torch.float32, hidden: int = 7, layers: int = 3):
    """Its states lie as the generator's do: each layer's rows in one slot that other prompts are in too."""
    slot = torch.randn(layers, tokens + 9, hidden).to(dtype)
    ids = torch.arange(tokens)
    return {"input_ids": ids, "hidden_states": list(slot[:, 5 : 5 + tokens]), "loss_mask": ids % 2}


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written_is_read_and_outlined(files, dtype, tmp_path):
    path, wanted = tmp_path / "sample", sample(13, dtype)
    files.write(path, wanted)
    found = files.read(path)
    assert found.keys() == (wanted.keys() if files is PT else wanted.keys() - {"loss_mask"})
    assert torch.equal(found["input_ids"], wanted["input_ids"])
    for one, other in zip(found["hidden_states"], wanted["hidden_states"], strict=True):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)
    outline = files.outline(path)
    assert (list(outline.states), outline.problem(3)) == ([((13, 7), dtype)] * 3, "")
    assert files.damage(path) == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["sample"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", [1, 200, 1 << 21])
def test_states_are_written_as_safetensors_writes_them(dtype, block, tmp_path, monkeypatch):
    """Byte for byte, whatever the block, with a part of one at the end."""
    monkeypatch.setattr(sample_files, "BLOCK", block)
    path, wanted = tmp_path / "hs_0.safetensors", sample(13, dtype)
    STATES.write(path, wanted)
    tensors = {"hidden_states": torch.stack(wanted["hidden_states"], 1), "token_ids": wanted["input_ids"]}
    with safe_open(path, framework="pt") as file:
        recorded = file.metadata()
    assert path.read_bytes() == save(tensors, recorded)
    assert re.fullmatch("[0-9a-f]{16}", recorded["xxh3_64"])
    for name, tensor in load_file(path).items():
        assert torch.equal(tensor, tensors[name])


def test_states_are_written_without_a_second_copy_of_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_files, "BLOCK", 4096)
    stacked = []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda *args, **kwargs: stacked.append(kwargs["out"]) or stack(*args, **kwargs))
    STATES.write(tmp_path / "hs_0.safetensors", sample(500, hidden=64))
    assert len(stacked) > 10
    assert {(block.data_ptr(), block.untyped_storage().nbytes() <= 4096) for block in stacked} == {
        (stacked[0].data_ptr(), True)
    }


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(files, tmp_path, monkeypatch):
    path = files.path(tmp_path, 0)
    path.parent.mkdir(exist_ok=True)
    files.write(path, sample(13))
    before = path.read_bytes()

    def half(content, file):
        file.write(b"half")
        raise OSError("no space")

    def blocks(ids, states):
        yield b"half"
        raise OSError("no space")

    monkeypatch.setattr(torch, "save", half)
    monkeypatch.setattr(sample_files, "_blocks", blocks)
    with pytest.raises(OSError, match="no space"):
        files.write(path, sample(17))
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_files_of_speculators_own_client_carry_no_checksum_and_are_sound(tmp_path):
    path = tmp_path / "hs_0.safetensors"
    save_file({"hidden_states": torch.zeros(4, 3, 7), "token_ids": torch.arange(4)}, path)
    assert (STATES.damage(path), STATES.outline(path).problem(3)) == ("", "")


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"hidden_states": torch.zeros(4, 3, 7)}, "not token_ids and hidden_states"),
        ({"hidden_states": torch.zeros(4, 7), "token_ids": torch.arange(4)}, "not token_ids and hidden_states"),
        ({"hidden_states": torch.zeros(4, 3, 7).to(torch.float8_e4m3fn), "token_ids": torch.arange(4)}, "F8_E4M3"),
        (
            # Mooncake's and the FP8 connector's files: values without their scales are no states.
            {"hidden_states": torch.zeros(4, 3, 7), "token_ids": torch.arange(4), "scales": torch.ones(4)},
            "not token_ids and hidden_states",
        ),
    ],
)
def test_files_of_another_content_say_what_they_hold(tensors, said, tmp_path):
    path = tmp_path / "hs_0.safetensors"
    save_file(tensors, path)
    for look in (STATES.read, STATES.outline):
        with pytest.raises(SampleError, match=said):
            look(path)
    assert said in STATES.damage(path)


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("keep", [0, 7, 8, 100, -1])
def test_truncated_files_are_noticed_without_reading_states(files, keep, tmp_path):
    path = tmp_path / "sample"
    files.write(path, sample(13))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SampleError, match="unreadable"):
        files.outline(path)
    assert files.damage(path)


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS)
def test_a_missing_file_is_one_error(files, tmp_path):
    for look in (files.read, files.outline):
        with pytest.raises(SampleError, match="unreadable"):
            look(tmp_path / "none")


def test_a_flipped_bit_is_noticed_by_the_checksum(tmp_path):
    path = tmp_path / "hs_0.safetensors"
    STATES.write(path, sample(13))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert STATES.outline(path).problem(3) == ""
    assert STATES.damage(path) == "damaged (its checksum)"


def test_states_of_a_type_that_has_no_place_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="float64"):
        STATES.write(tmp_path / "hs_0.safetensors", sample(3, torch.float64))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["no mapping", {"input_ids": [1], "hidden_states": [], "loss_mask": [1]}])
def test_an_archive_of_something_else_is_no_sample(content, tmp_path):
    torch.save(content, tmp_path / "data_0.pt")
    with pytest.raises(SampleError, match="unreadable"):
        PT.outline(tmp_path / "data_0.pt")


def test_names_and_numbers(tmp_path):
    assert PT.path(tmp_path, 3) == tmp_path / "data_3.pt"
    assert STATES.path(tmp_path, 30) == tmp_path / "hidden_states" / "hs_30.safetensors"
    assert [PT.index(name) for name in ("data_12.pt", "data_x.pt", "data_1.ptx", "hs_1.safetensors")] == [
        12,
        None,
        None,
        None,
    ]
    assert STATES.index("hs_12.safetensors") == 12
    assert STATES.found(tmp_path / "none") == {}
    for name in ("data_10.pt", "data_2.pt", "token_freq.pt"):
        (tmp_path / name).touch()
    assert PT.found(tmp_path) == {2: tmp_path / "data_2.pt", 10: tmp_path / "data_10.pt"}
    assert list(PT.found(tmp_path)) == [2, 10]


@pytest.mark.parametrize(
    ("version", "form"),
    [
        (None, "pt"),
        ("0.3.0", "pt"),
        ("0.4.0.1", "pt"),
        ("0.5.0", "safetensors"),
        ("0.5.0.dev20260401", "safetensors"),
        ("0.9.0", "safetensors"),
        ("unknown", "pt"),
    ],
)
def test_the_form_of_a_release(version, form):
    assert form_of(version) == form


def test_an_outline_says_what_is_wrong():
    good = sample(4)
    assert Outline.of(good).problem(3) == ""
    assert Outline.of(good).problem(4) == "3 states for 4 layers"
    assert "must be int64" in Outline.of({**good, "input_ids": torch.arange(4.0)}).problem(3)
    assert "mask covers (3,)" in Outline.of({**good, "loss_mask": torch.ones(3).long()}).problem(3)
    states = good["hidden_states"]
    assert "for 4 tokens" in Outline.of({**good, "hidden_states": [*states[:2], states[2][:3]]}).problem(3)
    assert "width or dtype" in Outline.of({**good, "hidden_states": [*states[:2], states[2].half()]}).problem(3)
