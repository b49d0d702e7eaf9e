"""What a run needs: every figure against one worked out by hand, and the refusal of a disk that is too small."""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import yaml
from rich.console import Console
from tests.support import run_python
from tests.unit.test_cli import HEAVY, refused, run

from speculators_compat.drift import UsageError
from speculators_compat.pipeline import plan as planning
from speculators_compat.pipeline import sizes, space, weights
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.pipeline.draft import layer_fields
from speculators_compat.pipeline.verifier import Verifier
from speculators_compat.pipeline.workload import Workload, count_answers, count_conversations
from speculators_compat.sample_files import FORMS

ROOT = Path(__file__).parents[2]

# moonshotai/Kimi-K2.5 as published: sizes of its config.json.
KIMI_TEXT = {
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 1,
    "intermediate_size": 18432,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}, "targets": ["Linear"]}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
    },
}
KIMI = {
    "model_type": "kimi_k25",
    "auto_map": {"AutoConfig": "evil.Config"},
    "text_config": KIMI_TEXT,
    "vision_config": {"hidden_size": 1152},
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-5,
}


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` gives."""

    total: int
    used: int
    free: int


def checkpoint(folder: Path, config: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> Path:
    """A file with a true header; nobody reads the tensors, so there are none behind it."""
    header, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


def kimi(tmp_path: Path, **changes: dict) -> RunConfig:
    """The shipped configuration on a folder that holds the published config.json."""
    content = yaml.safe_load((ROOT / "configs" / "kimi-k2.5.yaml").read_text())
    content |= {"model": str(checkpoint(tmp_path / "kimi", KIMI)), "output": str(tmp_path / "run")}
    for section, values in changes.items():
        content[section] = {**content[section], **values} if isinstance(values, dict) else values
    return RunConfig.model_validate(content)


def small(tmp_path: Path, lines: int = 10, **changes: object) -> RunConfig:
    data = tmp_path / "data.jsonl"
    data.write_text('{"conversations": []}\n' * lines)
    content = {
        "model": str(checkpoint(tmp_path / "llama", LLAMA)),
        "output": str(tmp_path / "run"),
        "seq_length": 100,
        "prepare": {"data": str(data)},
        "vocab": {"draft_vocab_size": 500},
        "train": {"epochs": 2, "total_seq_len": 128},
    }
    return RunConfig.model_validate({**content, **changes})


def shape_of(text: dict, layer_ids: list[int]) -> sizes.Shape:
    return sizes.Shape.of(Verifier({}, SimpleNamespace(**text), layer_ids))


def items(plan: planning.Plan, section: str) -> dict[str, int | None]:
    return {item.name: item.bytes for item in plan.sections[section]}


@pytest.fixture
def disk(monkeypatch):
    """Set the free bytes of every disk."""

    def free(number: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**15, 0, number))

    return free


def test_a_million_tokens_of_kimi(tmp_path):
    config, shape = kimi(tmp_path), shape_of(KIMI_TEXT, [2, 30, 58, 60])
    assert sizes.state_bytes(config, shape) == 4 * 7168 * 2 == 57_344
    # 57.344 GB of states, and 8 bytes each for id and mask
    assert sizes.sample_bytes(config, shape, 0, 1_000_000) == 57_344_000_000 + 16_000_000
    assert sizes.sample_bytes(config, shape, 1000, 1_000_000) - sizes.sample_bytes(config, shape, 0, 1_000_000) == (
        1000 * FORMS["pt"].overhead
    )
    assert sizes.state_bytes(kimi(tmp_path, extract={"dtype": "float32"}), shape) == 2 * 57_344


def test_the_plan_of_kimi(tmp_path, monkeypatch):
    monkeypatch.delenv("VLLM_MLA_DISABLE", raising=False)  # the CPU engine's setting
    plan = planning.make_plan(kimi(tmp_path))
    assert (plan.work.samples, plan.work.tokens, plan.work.exact) == (20_000, 20_000 * 4096, False)
    found = items(plan, planning.DISK)
    assert found["samples"] == 81_920_000 * 57_360 + 20_000 * 8192
    # 2,233,309,184 saved parameters in bfloat16, t2d and d2t; two float32 moments of the 1,058,828,288 trained ones
    weights_bytes = 2 * (1_058_828_288 + 163_840 * 7168) + 163_840 + 32_000 * 8
    assert found["checkpoints"] == 10 * (weights_bytes + 8 * 1_058_828_288)
    gpu = items(plan, planning.EXTRACT_GPU)
    assert gpu["KV cache of a step"] == (8192 + 4097) * 61 * (512 + 64) * 2
    assert gpu["captured states (rank 0)"] == 2 * 8192 * 57_344
    assert items(plan, planning.EXTRACT_HOST) == {
        "steps in /dev/shm": 6 * 8192 * 57_344,
        "samples waiting for the disk": 2 * 8 * 4096 * 57_344,
    }
    batch = 8192 * (4 * 7168 * 2 + 24)
    assert items(plan, planning.TRAIN_HOST)["batches"] == 8 * (2 * 2 + 1) * batch
    trainer = items(plan, planning.TRAIN_GPU)
    assert trainer["batch"] == batch == 469_958_656
    assert trainer["AdamW's moments"] == 8 * 1_058_828_288 // 8
    assert trainer["gradients"] == 4 * 1_058_828_288 // 8
    assert trainer["draft parameters"] == 4 * (1_058_828_288 + 163_840 * 7168 + 32_000 * 7168) // 8
    files = dict(plan.files)
    assert files["data/data_*.pt"] == 20_000
    assert files["checkpoints/*/optimizer_state_dict.pt"] == 10


def test_parameters_of_the_draft(tmp_path):
    """The published shape: 64 heads of 128, MLP 12288; its first layer reads 2 x 7168 values."""
    verifier = Verifier({}, SimpleNamespace(**KIMI_TEXT), [2, 30, 58, 60])
    one = sizes.draft_size(layer_fields(kimi(tmp_path).train.draft, verifier), 32_000)
    assert one.layers == 3 * 117_440_512 + 58_720_256 + 264_241_152 + 3 * 7168 == 675_304_448
    assert one.others == 154_140_672 + 7168 + 229_376_000
    assert (one.embedding, one.verifier_head) == (1_174_405_120, 229_376_000)
    draft = kimi(tmp_path, train={"draft": {**kimi(tmp_path).train.draft.model_dump(), "num_layers": 2}}).train.draft
    two = sizes.draft_size(layer_fields(draft, verifier), 32_000)
    assert two.layers - one.layers == 3 * 58_720_256 + 58_720_256 + 264_241_152 + 2 * 7168


def test_cache_of_a_token(monkeypatch):
    monkeypatch.delenv("VLLM_MLA_DISABLE", raising=False)
    latent = shape_of(KIMI_TEXT, [2, 30, 58, 60])
    assert latent.cache_bytes(1, 2)[0] == latent.cache_bytes(8, 2)[0] == 61 * 576 * 2 == 70_272
    monkeypatch.setenv("VLLM_MLA_DISABLE", "1")
    assert latent.cache_bytes(8, 2)[0] == 61 * 2 * 8 * 192 * 2
    grouped = shape_of(LLAMA, [2, 4, 5, 7])
    assert grouped.cache_bytes(1, 2)[0] == 8 * 2 * 2 * 8 * 2
    # two heads on eight ranks: each rank keeps one
    assert grouped.cache_bytes(8, 2)[0] == 8 * 2 * 1 * 8 * 2


def test_batches_keep_the_dtype_of_the_states(tmp_path):
    wide = planning.make_plan(kimi(tmp_path, extract={"dtype": "float32"}))
    stored = planning.make_plan(kimi(tmp_path))
    saved = 8192 * 4 * 7168 * 2
    for section, batches in ((planning.TRAIN_GPU, 1), (planning.TRAIN_HOST, 8 * 5)):
        name = "batch" if section == planning.TRAIN_GPU else "batches"
        assert items(wide, section)[name] - items(stored, section)[name] == batches * saved


@pytest.mark.parametrize(("workers", "batches"), [(0, 1), (3, 7)])
def test_loaders_in_the_process_itself_hold_one_batch(tmp_path, workers, batches):
    config = small(tmp_path, train={"num_workers": workers, "total_seq_len": 128})
    plan = planning.make_plan(config)
    assert items(plan, planning.TRAIN_HOST)["batches"] == batches * 128 * (4 * 64 * 2 + 24)


def test_tokens_before_the_prepare_step_are_an_upper_bound(tmp_path):
    work = planning.make_plan(small(tmp_path)).work
    assert (work.samples, work.tokens, work.exact) == (10, 1000, False)
    assert "upper bound: 10 conversations" in work.source
    limited = planning.make_plan(small(tmp_path, prepare={"data": str(tmp_path / "data.jsonl"), "max_samples": 3})).work
    assert (limited.samples, limited.tokens) == (3, 300)
    assert "prepare.max_samples" in limited.source
    # the engine keeps one of the verifier's 512 positions for the token it samples
    longer = planning.make_plan(small(tmp_path, seq_length=4096, train={})).work
    assert longer.tokens == 10 * 511


def test_a_named_data_set_without_a_limit_is_unknown(tmp_path, disk):
    disk(10**12)
    plan = planning.make_plan(small(tmp_path, prepare={"data": "sharegpt"}))
    assert plan.work.samples is None
    assert "set prepare.max_samples" in plan.work.source
    assert items(plan, planning.DISK)["samples"] is None
    content = plan.as_dict()
    assert content["disk"]["complete"] is False
    planning.check(plan)  # what is known fits


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", '{"a": 1}\n\n  \n{"a": 2}', 2),
        ("a.json", '{"a": 1}\n{"a": 2}\n', 2),
        ("a.json", ' \n[{"a": 1}, {"a": 2},\n {"a": 3}]', 3),
        ("empty.jsonl", "", 0),
    ],
)
def test_counting_conversations(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert count_conversations(tmp_path / name) == expected


def test_counting_assistant_turns(tmp_path):
    turns = [{"role": "user"}, {"role": "assistant"}, {"from": "human"}, {"from": "gpt"}]
    rows = [{"conversations": turns}, {"input_ids": [1, 2]}, {"conversations": []}, {}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert count_answers(tmp_path / "a.jsonl") == count_answers(tmp_path / "a.json") == 3


@pytest.mark.parametrize("count", [count_conversations, count_answers])
@pytest.mark.parametrize(("name", "text"), [("missing.jsonl", None), ("half.json", '[{"a": 1}')])
def test_data_that_cannot_be_counted(tmp_path, name, text, count):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"prepare\.data must be a readable file"):
        count(tmp_path / name)


def test_a_disk_that_is_one_byte_too_small_is_refused_with_the_arithmetic(tmp_path, disk):
    plan = planning.make_plan(small(tmp_path))
    needed = sizes.total(plan.sections[planning.DISK])
    token = 4 * 64 * 2 + 16
    draft = sizes.draft_size(layer_fields(plan.config.train.draft, planning._verifier(plan.config, LLAMA)), 500)
    assert needed == 1000 * 16 + 1000 * token + 10 * 8192 + 2 * (draft.saved_weights + draft.saved_optimizer)
    disk(needed)
    planning.check(plan)
    disk(needed - 1)
    with pytest.raises(UsageError) as error:
        planning.check(plan)
    assert (
        "1,000 tokens x (512 B of states + 16 B for id and mask a token) + 10 files x 8,192 B" in error.value.required
    )
    assert "2 epochs x" in error.value.required
    assert "at most" in error.value.required
    assert error.value.found == f"{sizes.readable(needed - 1)} free in {tmp_path}"
    assert "Free 1 B more" in error.value.way_out
    assert "upper bound" in error.value.way_out
    assert not (tmp_path / "run").exists()


def test_what_is_extracted_does_not_count_again(tmp_path, disk):
    config, shape = small(tmp_path), shape_of(LLAMA, [2, 4, 5, 7])
    draft = sizes.DraftSize(0, 0, 0, 0, (0, 0))
    work = Workload.counted(config, shape, [100, 7, 50, 200], {1: 7, 3: 100})
    assert (work.tokens, work.missing) == (257, (2, 150))
    found = {item.name: item.bytes for item in space.needed(config, shape, draft, work)}
    assert found == {"prepared rows": 0, "samples": 150 * 528 + 2 * 8192, "checkpoints": 0}
    nothing = Workload.counted(config, shape, [100, 7], {0: 100, 1: 7})
    disk(0)
    space.check_space(config, space.needed(config, shape, draft, nothing), exact=True)


def test_exact_tokens_are_not_called_a_bound(tmp_path, disk):
    config, shape = small(tmp_path), shape_of(LLAMA, [2, 4, 5, 7])
    work = Workload.counted(config, shape, [5], {})
    disk(1)
    with pytest.raises(UsageError) as error:
        space.check_space(config, space.needed(config, shape, sizes.DraftSize(0, 0, 0, 0, (0, 0)), work), work.exact)
    assert "at most" not in str(error.value)
    assert "bound" not in str(error.value)


def test_complete_checkpoints_do_not_count_again(tmp_path):
    config = small(tmp_path)
    before = items(planning.make_plan(config), planning.DISK)["checkpoints"]
    names = ("config.json", "optimizer_state_dict.pt", "scheduler_state_dict.pt", "model.safetensors")
    for epoch, files in ((0, names), (1, names[:-1])):
        folder = config.checkpoint_dir / str(epoch)
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).touch()
    assert items(planning.make_plan(config), planning.DISK)["checkpoints"] == before // 2


TENSORS = {
    "language_model.model.embed_tokens.weight": ("BF16", [1000, 64], 128_000),  # split
    "language_model.model.norm.weight": ("BF16", [64], 128),  # whole
    "language_model.model.layers.0.self_attn.q_a_proj.weight": ("BF16", [16, 64], 2048),  # whole
    "language_model.model.layers.0.self_attn.o_proj.weight": ("BF16", [64, 64], 8192),  # split
    "language_model.model.layers.1.mlp.gate.weight": ("BF16", [4, 64], 512),  # whole
    "language_model.model.layers.1.mlp.experts.0.gate_proj.weight_packed": ("I32", [64, 8], 2048),  # split
    "language_model.model.layers.1.mlp.experts.0.gate_proj.weight_scale": ("BF16", [64, 2], 256),  # split
    "language_model.model.layers.1.mlp.experts.0.gate_proj.weight_shape": ("I64", [2], 16),  # whole
    "vision_tower.blocks.0.wqkv.weight": ("BF16", [64, 64], 8192),  # whole
}
SPLIT = 128_000 + 8192 + 2048 + 256
WHOLE = 128 + 2048 + 512 + 16 + 8192


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_weights_of_a_rank_come_from_the_headers(tmp_path, ranks):
    folder = checkpoint(tmp_path / "model", KIMI)
    half = len(TENSORS) // 2
    for name, part in (("a", list(TENSORS.items())[:half]), ("b", list(TENSORS.items())[half:])):
        safetensors(folder / f"{name}.safetensors", dict(part))
    # a file that no index names is not loaded
    index = {"weight_map": dict.fromkeys(TENSORS, "a.safetensors") | {"x": "b.safetensors"}}
    (folder / weights.INDEX).write_text(json.dumps(index))
    safetensors(folder / "other.safetensors", {"stray": ("F32", [1000, 1000], 4_000_000)})
    item = weights.weights_item(str(folder), KIMI, SimpleNamespace(**KIMI_TEXT), ranks)
    assert item.bytes == WHOLE + SPLIT // ranks
    assert "2 files" in item.how


def test_a_key_value_head_is_never_split(tmp_path):
    tensors = [weights.Tensor("layers.0.self_attn.k_proj.weight", (16, 64), 2048)]
    assert [weights.rank_bytes(tensors, ranks, kv_heads=2) for ranks in (1, 2, 8)] == [2048, 1024, 1024]


def test_weights_by_the_index_alone(tmp_path):
    folder = checkpoint(tmp_path / "model", KIMI)
    index = {"metadata": {"total_size": 1001}, "weight_map": {"x": "missing.safetensors"}}
    (folder / weights.INDEX).write_text(json.dumps(index))
    item = weights.weights_item(str(folder), KIMI, SimpleNamespace(**KIMI_TEXT), 8)
    assert item.bytes == 126
    assert weights.INDEX in item.how


def test_an_index_names_no_file_of_another_folder(tmp_path):
    folder = checkpoint(tmp_path / "model", KIMI)
    safetensors(tmp_path / "secret.safetensors", {"x": ("F32", [2, 2], 16)})
    (folder / weights.INDEX).write_text(json.dumps({"weight_map": {"x": "../secret.safetensors"}}))
    assert weights.weights_item(str(folder), KIMI, SimpleNamespace(**KIMI_TEXT), 1).bytes is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 9) + b'{"a":{}} ',
    ],
)
def test_a_damaged_header_is_said_and_not_counted(tmp_path, content):
    folder = checkpoint(tmp_path / "model", KIMI)
    (folder / "model.safetensors").write_bytes(content)
    item = weights.weights_item(str(folder), KIMI, SimpleNamespace(**KIMI_TEXT), 1)
    assert item.bytes is None
    assert "model.safetensors" in item.how


def test_kimi_that_is_not_here_is_unknown_and_implied_by_its_config():
    # 60 layers x 384 experts x 3 x 7168 x 2048 at 4 bits and a 16-bit scale for 32 of them
    experts = 60 * 384 * 3 * 7168 * 2048
    attention = 7168 * 1536 + 1536 * 64 * 192 + 7168 * 576 + 512 * 64 * 256 + 64 * 128 * 7168
    others = 61 * attention + 3 * 7168 * 18432 + 60 * (3 * 7168 * 2048 + 384 * 7168) + 2 * 163_840 * 7168
    assert weights.implied_bytes(KIMI, SimpleNamespace(**KIMI_TEXT)) == experts * 9 // 16 + 2 * others
    item = weights.weights_item("moonshotai/not-downloaded", KIMI, SimpleNamespace(**KIMI_TEXT), 8)
    assert item.bytes is None
    assert "594.20 GB, 74.28 GB on each of 8 ranks" in item.how


def test_weights_implied_by_a_plain_config():
    attention = 2 * 64 * 8 * (8 + 2)
    linear = 8 * (attention + 3 * 64 * 256)
    assert weights.implied_bytes(LLAMA, SimpleNamespace(**LLAMA)) == 2 * (linear + 2 * 1000 * 64)
    quantised = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert weights.implied_bytes(quantised, SimpleNamespace(**LLAMA)) == linear + 2 * 2 * 1000 * 64
    assert weights.implied_bytes({}, SimpleNamespace(hidden_size=3)) is None


@pytest.mark.parametrize("value", ["64", 0, -1, None, True])
def test_a_config_with_a_wrong_size_is_refused(value):
    with pytest.raises(UsageError, match="hidden_size"):
        shape_of({**LLAMA, "hidden_size": value}, [2, 4, 5, 7])


def test_a_size_for_each_layer_is_no_size_of_the_draft(tmp_path):
    text = {**LLAMA, "intermediate_size": [256] * 8}
    config = small(tmp_path, model=str(checkpoint(tmp_path / "lists", text)))
    with pytest.raises(UsageError, match=r"Set train\.draft\.intermediate_size"):
        planning.make_plan(config)
    sized = small(tmp_path, model=config.model, train={"draft": {"intermediate_size": 128}})
    assert items(planning.make_plan(sized), planning.DISK)["checkpoints"]


def test_layers_and_vocabulary_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UsageError, match="last layer, 7"):
        planning.make_plan(small(tmp_path, layer_ids=[1, 2, 3, 4]))
    with pytest.raises(UsageError, match="1001 of 1000 tokens"):
        planning.make_plan(small(tmp_path, vocab={"draft_vocab_size": 1001}))


def write(config: RunConfig, folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    return path


def test_the_command_prints_the_plan_and_runs_no_code_of_the_checkpoint(tmp_path):
    config = small(tmp_path, model=str(checkpoint(tmp_path / "own", {**LLAMA, "auto_map": {"AutoConfig": "evil.C"}})))
    (tmp_path / "own" / "evil.py").write_text("raise SystemExit('the code ran')")
    path = write(config, tmp_path)
    shown = run("plan", path, cwd=tmp_path, env={"COLUMNS": "200"})
    assert shown.returncode == 0, shown.stderr
    for words in ("upper bound: 10 conversations", "1,000 tokens x 16 B", "KV cache of a step", "data/data_*.pt (10)"):
        assert words in shown.stdout
    content = json.loads(run("plan", path, "--json", cwd=tmp_path).stdout)
    assert content["data"] == {
        "samples": 10,
        "tokens": 1000,
        "exact": False,
        "source": content["data"]["source"],
        "extracted_samples": 0,
        "extracted_tokens": 0,
    }
    assert content["disk"]["bytes"] == sum(item["bytes"] for item in content["disk"]["items"])
    assert not (tmp_path / "run").exists()


def test_the_command_refuses_with_exit_code_2_and_prints_the_plan_all_the_same(tmp_path):
    path = write(small(tmp_path, prepare={"data": "sharegpt", "max_samples": 10**12}), tmp_path)
    result = run("plan", path, "--json", cwd=tmp_path)
    assert "100,000,000,000,000 tokens x" in refused(result)
    assert json.loads(result.stdout)["data"]["samples"] == 10**12


def test_the_command_imports_nothing_heavy(tmp_path):
    path = write(small(tmp_path), tmp_path)
    code = (
        f"import sys; sys.argv = ['speculators-compat', 'plan', {str(path)!r}]\n"
        "from speculators_compat.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    assert run_python(code).stderr.splitlines()[-1] == "[]"


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path):
    plan = planning.make_plan(small(tmp_path, output=str(tmp_path / "[bold]run[/nothing]")))
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(planning.as_renderable(plan))
    assert "[bold]run[/nothing]" in console.export_text()


@pytest.mark.parametrize("draft", [{"num_attention_heads": 6, "num_key_value_heads": 4}, {"head_dim": 33}])
def test_a_draft_that_cannot_be_built_is_refused(tmp_path, draft):
    with pytest.raises(UsageError, match="heads must divide"):
        planning.make_plan(small(tmp_path, train={"draft": draft}))
