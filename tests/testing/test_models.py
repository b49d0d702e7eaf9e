"""The tiny models: real checkpoints, sensible states, faithful chat format; no engine runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from speculators_compat.testing import (
    TINY_MODELS,
    make_conversations,
    make_model,
    random_prompts,
    reference_hidden_states,
    relative_error,
)
from speculators_compat.testing import weights as weights_module
from speculators_compat.testing.checkpoint import read_tensors, write_json
from speculators_compat.testing.kimi_k25 import KimiShape
from speculators_compat.testing.tokenizers import KIMI_SPECIAL_TOKENS, kimi_special_ids

pytestmark = pytest.mark.default_pair

KINDS = sorted(TINY_MODELS)
FAST_KINDS = sorted(set(KINDS) - {"kimi_k25"})
LAYERS = {"kimi_k25": 6, "llama": 4, "qwen3": 4, "qwen3_moe": 4, "gemma3": 4}
CONVERSATION = [
    {"role": "user", "content": "Count from 3 to 6."},
    {"role": "assistant", "content": "3 4 5 6.", "reasoning_content": "An old thought."},
    {"role": "user", "content": "Repeat the word größe 😀 2 times."},
    {"role": "assistant", "content": "größe 😀 größe 😀.", "reasoning_content": "Twice, then."},
]


@pytest.fixture(scope="module", autouse=True)
def module_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep the copies that transformers makes of remote code out of the user's cache."""
    patch = pytest.MonkeyPatch()
    cache = str(tmp_path_factory.mktemp("modules"))
    patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", cache)
    patch.setattr("transformers.utils.hub.HF_MODULES_CACHE", cache, raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: make_model(kind, root / kind) for kind in KINDS}


@pytest.fixture(scope="module")
def kimi_tokenizer(folders: dict[str, Path]) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folders["kimi_k25"], trust_remote_code=True)


def vocabulary(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(config.get("text_config", config)["vocab_size"])


def token_ids(encoded: Any) -> list[int]:
    """Ids of ``apply_chat_template``: a list in transformers 4, a mapping in 5."""
    return list(encoded if isinstance(encoded, list) else encoded["input_ids"])


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, speculators_compat.testing;"
        "print(sorted({'torch', 'vllm', 'transformers', 'tokenizers', 'safetensors',"
        " 'speculators'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", KINDS)
def test_reference_loads_every_weight(
    kind: str, folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folders[kind]
    if kind == "kimi_k25":
        tensors = read_tensors(folder)
        text = {
            name.removeprefix("language_model."): value
            for name, value in tensors.items()
            if name.startswith("language_model.")
        }
        others = {name.split(".")[0] for name in tensors} - {"language_model"}
        assert others == {"vision_tower", "mm_projector"}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["text_config"]
        write_json(tmp_path / "config.json", {**config, "model_type": "deepseek_v3"})
        from safetensors.torch import save_file

        save_file(text, tmp_path / "model.safetensors", metadata={"format": "pt"})
        folder = tmp_path
    _, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]


@pytest.mark.parametrize("kind", KINDS)
def test_states_vary_with_token_position_and_layer(kind: str, folders: dict[str, Path]) -> None:
    layers = list(range(LAYERS[kind]))
    prompts = [[7, 9] * 30, [7, 9] * 29 + [7, 11]]
    first, second = reference_hidden_states(folders[kind], prompts, layers)
    for layer, (states, changed) in enumerate(zip(first, second, strict=True)):
        assert states.dtype == torch.float32
        assert states.shape == (60, 128)
        assert torch.isfinite(states).all()
        spread = states.pow(2).mean(-1).sqrt()
        assert spread.min() > 0.3
        assert spread.max() < 10
        assert relative_error(states[58], states[2]) > 1e-3, "same token, other position"
        assert relative_error(changed[59], states[59]) > 0.1, "other token, same position"
        assert relative_error(changed[:59], states[:59]) < 1e-6, "causal"
        if layer:
            assert relative_error(states, first[layer - 1]) > 0.1, "each layer moves the state"


@pytest.mark.parametrize("kind", KINDS)
def test_last_layer_is_before_the_final_norm(kind: str, folders: dict[str, Path]) -> None:
    from speculators_compat.testing.reference import load_reference_model

    prompt = random_prompts(300, [23], seed=4)[0]
    last = reference_hidden_states(folders[kind], [prompt], [LAYERS[kind] - 1])[0][0]
    model = load_reference_model(folders[kind])
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([prompt])).logits[0]
        logits = model.lm_head(model.model.norm(last))
    assert relative_error(logits, expected) < 1e-5
    assert relative_error(model.model.norm(last), last) > 0.05


def test_reference_keeps_the_order_that_was_asked(folders: dict[str, Path]) -> None:
    prompts = random_prompts(512, [1, 40, 3], seed=1)
    forward = reference_hidden_states(folders["llama"], prompts, [0, 3])
    backward = reference_hidden_states(folders["llama"], prompts[::-1], [3, 0])[::-1]
    for (first, last), (other_last, other_first) in zip(forward, backward, strict=True):
        assert torch.equal(first, other_first)
        assert torch.equal(last, other_last)
    with pytest.raises(ValueError, match="layer ids from 0 to 3"):
        reference_hidden_states(folders["llama"], prompts, [4])


def test_gemma3_window_hides_old_tokens(tmp_path: Path) -> None:
    folder = make_model("gemma3", tmp_path / "gemma3", sliding_window=16)
    prompt = random_prompts(500, [60], seed=2)[0]
    edited = [prompt[0] + 1, *prompt[1:]]
    one, other = reference_hidden_states(folder, [prompt, edited], [0, 1, 2])
    assert torch.equal(one[0][40:], other[0][40:]), "layer 0 slides: token 0 is out of sight"
    assert not torch.equal(one[2][40:], other[2][40:]), "layer 2 sees everything"


def test_seed_decides_the_weights(tmp_path: Path) -> None:
    names = {"a": 0, "b": 0, "c": 1}
    made = {
        name: read_tensors(make_model("llama", tmp_path / name, seed=seed, num_hidden_layers=1))
        for name, seed in names.items()
    }
    assert all(torch.equal(made["a"][key], value) for key, value in made["b"].items())
    assert all(not torch.equal(made["a"][key], value) for key, value in made["c"].items())


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16(kind: str, tmp_path: Path) -> None:
    folder = make_model(kind, tmp_path / kind, dtype="bfloat16", num_hidden_layers=3)
    kinds = {name: tensor.dtype for name, tensor in read_tensors(folder).items()}
    wide = {name for name, dtype in kinds.items() if dtype != torch.bfloat16}
    # The correction bias is float32 in every engine: bf16 would merge neighbouring experts.
    assert all(name.endswith("e_score_correction_bias") for name in wide)
    assert len(wide) == (2 if kind == "kimi_k25" else 0)


@pytest.mark.parametrize("kind", ["qwen3_moe", "kimi_k25"])
def test_routers_choose_with_a_margin(kind: str, folders: dict[str, Path]) -> None:
    """Recomputes the scores from transformers' own router inputs, with none of the maker's code."""
    from speculators_compat.testing.reference import load_reference_model

    model = load_reference_model(folders[kind])
    margins, chosen, forgetful = [], [], []

    def watch(module: Any, args: Any, output: Any) -> None:
        logits = args[0].reshape(-1, 128).float() @ module.gate.weight.float().T
        if kind == "kimi_k25":
            scores = logits.sigmoid()
            forgetful.append(scores.topk(2).indices.sort().values)
            logits = scores + module.gate.e_score_correction_bias
        values, indices = logits.topk(3)
        margins.append(values[:, 1] - values[:, 2])
        chosen.append(indices[:, :2].sort().values)

    for layer in model.model.layers:
        if hasattr(layer.mlp, "experts"):
            layer.mlp.register_forward_hook(watch)
    prompts = random_prompts(vocabulary(folders[kind]), [400, 400], seed=3)
    with torch.inference_mode():
        for prompt in prompts:
            model(input_ids=torch.tensor([prompt]))
    assert torch.cat(margins).min() > weights_module.ROUTER_MARGIN
    assert len(torch.cat(chosen).unique(dim=0)) > 8, "different tokens choose different experts"
    if forgetful:
        without_bias = torch.cat(forgetful) != torch.cat(chosen)
        assert without_bias.float().mean() > 0.05, "the correction bias changes choices"


def test_impossible_router_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_module, "ROUTER_MARGIN", 2.0)
    with pytest.raises(ValueError, match=r"router margin above 2\.0"):
        make_model("kimi_k25", tmp_path / "kimi")


def test_sixty_one_layers(tmp_path: Path) -> None:
    folder = make_model("kimi_k25", tmp_path / "deep", num_hidden_layers=61, hidden_size=64)
    states = reference_hidden_states(folder, [[5, 6, 7] * 4], [2, 30, 58, 60])[0]
    sizes = [float(state.pow(2).mean().sqrt()) for state in states]
    assert max(sizes) < 10 * min(sizes)
    assert relative_error(states[3], states[2]) > 0.01, "neighbours stay distinguishable"


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_split_over_eight_ranks(kind: str, folders: dict[str, Path]) -> None:
    config = json.loads((folders[kind] / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    names = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
    assert {name: text[name] % 8 for name in names} == dict.fromkeys(names, 0)
    assert 8 % text["num_key_value_heads"] == 0
    assert text.get("moe_intermediate_size", 8) % 8 == 0
    if "vision_config" in config:
        assert config["vision_config"]["num_attention_heads"] % 8 == 0


def test_shards_have_an_index(tmp_path: Path, folders: dict[str, Path]) -> None:
    folder = make_model("llama", tmp_path / "sharded", shards=3)
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    whole, parts = read_tensors(folders["llama"]), read_tensors(folder)
    assert set(index["weight_map"]) == set(whole) == set(parts)
    assert len(set(index["weight_map"].values())) == 3
    assert all(torch.equal(whole[name], tensor) for name, tensor in parts.items())


def test_kimi_config_loads_as_remote_code(folders: dict[str, Path]) -> None:
    config = transformers.AutoConfig.from_pretrained(folders["kimi_k25"], trust_remote_code=True)
    text = config.text_config
    assert config.model_type == "kimi_k25"
    assert config.architectures == ["KimiK25ForConditionalGeneration"]
    assert type(text).__name__ == "DeepseekV3Config"
    assert text.model_type == "kimi_k2"
    assert (text.num_hidden_layers, text.hidden_size) == (6, 128)
    assert (text.scoring_func, text.topk_method) == ("sigmoid", "noaux_tc")
    assert text.rope_scaling["factor"] == 64.0
    special = kimi_special_ids(text.vocab_size)
    assert config.media_placeholder_token_id == special["<|media_pad|>"]
    assert config.eos_token_id == special["<|im_end|>"]


def test_kimi_tokenizer_is_slow_and_has_no_offsets(kimi_tokenizer: Any) -> None:
    assert not kimi_tokenizer.is_fast
    assert len(kimi_tokenizer) == 768
    try:
        encoding = kimi_tokenizer("apple", return_offsets_mapping=True)
    except NotImplementedError:  # transformers 4 raises, 5 ignores the flag
        return
    assert "offset_mapping" not in encoding


def test_kimi_special_tokens_are_single_ids(kimi_tokenizer: Any) -> None:
    special = kimi_special_ids(768)
    assert list(special.values()) == list(range(512, 768))
    for name in KIMI_SPECIAL_TOKENS.values():
        identity = special[name]
        assert kimi_tokenizer.convert_tokens_to_ids(name) == identity
        assert kimi_tokenizer.convert_ids_to_tokens(identity) == name
        assert kimi_tokenizer.encode(f"a{name} b") == [
            *kimi_tokenizer.encode("a"),
            identity,
            *kimi_tokenizer.encode(" b"),
        ]


def test_kimi_special_ids_follow_the_published_layout() -> None:
    """Ids of public data of the K2 family (vocabulary 163840)."""
    ids = kimi_special_ids(163840)
    published = {
        "[BOS]": 163584,
        "[EOS]": 163585,
        "<|im_end|>": 163586,
        "<|im_user|>": 163587,
        "<|im_assistant|>": 163588,
        "<|im_system|>": 163594,
        "<|im_middle|>": 163601,
        "<|media_begin|>": 163602,
        "<|media_end|>": 163604,
        "<|media_pad|>": 163605,
        "<think>": 163606,
        "</think>": 163607,
    }
    assert {name: ids[name] for name in published} == published


@pytest.mark.parametrize(
    "text",
    ["", " ", "apple apple", "Größe 😀\n\t日本", "<|im_end|> <think></think>", "a\u0301\x00"],
)
def test_kimi_round_trip(kimi_tokenizer: Any, text: str) -> None:
    ids = kimi_tokenizer.encode(text)
    assert kimi_tokenizer.decode(ids) == text
    joined = kimi_tokenizer.convert_tokens_to_string(kimi_tokenizer.convert_ids_to_tokens(ids))
    assert joined == text


def test_kimi_every_id_has_a_token(kimi_tokenizer: Any) -> None:
    tokens = kimi_tokenizer.convert_ids_to_tokens(list(range(768)))
    assert len(set(tokens)) == 768
    assert kimi_tokenizer.convert_tokens_to_ids(tokens) == list(range(768))


def test_kimi_words_are_single_tokens(kimi_tokenizer: Any) -> None:
    assert len(kimi_tokenizer.encode(" apple banana 42 Monday")) == 4


def test_kimi_chat_template(kimi_tokenizer: Any) -> None:
    expected = (
        "<|im_system|>system<|im_middle|>You are a patient teacher.<|im_end|>"
        "<|im_user|>user<|im_middle|>Count from 3 to 6.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think></think>3 4 5 6.<|im_end|>"
        "<|im_user|>user<|im_middle|>Repeat the word größe 😀 2 times.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>Twice, then.</think>"
        "größe 😀 größe 😀.<|im_end|>"
    )
    text = kimi_tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    assert text == expected
    ids = token_ids(kimi_tokenizer.apply_chat_template(CONVERSATION, tokenize=True))
    assert ids == kimi_tokenizer.encode(expected)
    assert kimi_tokenizer.decode(ids) == expected
    assert "<|" not in kimi_tokenizer.decode(ids, skip_special_tokens=True)


def test_kimi_generation_prompt(kimi_tokenizer: Any) -> None:
    def tail(**options: Any) -> str:
        turns = CONVERSATION[:1]
        text = kimi_tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options)
        return str(text).rsplit("<|im_end|>", 1)[1]

    assert tail() == "<|im_assistant|>assistant<|im_middle|><think>"
    assert tail(thinking=False) == "<|im_assistant|>assistant<|im_middle|><think></think>"


def test_kimi_tool_calls_and_pictures(kimi_tokenizer: Any) -> None:
    call = {
        "id": "functions.find:0",
        "type": "function",
        "function": {"name": "find", "arguments": {"q": 1}},
    }
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "", "reasoning_content": "Ask.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.find:0", "content": "42"},
    ]
    assert kimi_tokenizer.apply_chat_template(messages, tokenize=False) == (
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>"
        "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>What?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>Ask.</think>"
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0"
        '<|tool_call_argument_begin|>{"q": 1}<|tool_call_end|><|tool_calls_section_end|>'
        "<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.find:0\n42<|im_end|>"
    )


def test_kimi_tokenizer_survives_saving(kimi_tokenizer: Any, tmp_path: Path) -> None:
    kimi_tokenizer.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=True)
    text = kimi_tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    assert again.encode(text) == kimi_tokenizer.encode(text)
    assert again.apply_chat_template(CONVERSATION, tokenize=False) == text


def test_kimi_image_processor(folders: dict[str, Path]) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    processor = transformers.AutoImageProcessor.from_pretrained(folders["kimi_k25"], trust_remote_code=True)
    frames = [image_module.new("RGB", (64, 64), (index, 0, 255)) for index in range(7)]
    assert processor.num_frames_per_chunk == 4
    chunks = [
        {"type": "image", "image": image_module.new("RGB", (100, 60))},
        *processor.split_video_chunks(frames),
    ]
    batch = processor.preprocess(chunks)
    assert batch["grid_thws"].tolist() == [[1, 4, 8], [4, 4, 4], [3, 4, 4]]
    assert batch["pixel_values"].shape == (32 + 64 + 48, 3, 14, 14)
    assert [processor.media_tokens_calculator(chunk) for chunk in chunks] == [8, 4, 4]
    blue = batch["pixel_values"][32:, 2]
    assert torch.allclose(blue, torch.ones_like(blue))


@pytest.mark.parametrize("kind", FAST_KINDS)
def test_fast_tokenizer(kind: str, folders: dict[str, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[kind])
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assert tokenizer.is_fast
    assert tokenizer.decode(encoding["input_ids"]) == text
    assert max(encoding["input_ids"]) < len(tokenizer) <= vocabulary(folders[kind])
    assert encoding["offset_mapping"][-1][1] == len(text)
    for name in ("<|im_start|>", "<|im_end|>", "<pad>"):
        assert tokenizer.encode(name, add_special_tokens=False) == [tokenizer.convert_tokens_to_ids(name)]
    prompt = tokenizer.apply_chat_template(CONVERSATION[:1], tokenize=False, add_generation_prompt=True)
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_speculators_masks_the_answers(folders: dict[str, Path]) -> None:
    preprocessing = pytest.importorskip("speculators.data_generation.preprocessing", reason="needs speculators")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["llama"])
    pattern = preprocessing._detect_assistant_pattern(tokenizer)
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False)
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    offsets = encoding["offset_mapping"]
    mask = preprocessing._create_loss_mask_from_offsets(text, offsets, pattern)
    kept = [identity for identity, keep in zip(encoding["input_ids"], mask, strict=True) if keep]
    trained = tokenizer.decode(kept).replace("<|im_end|>", "").replace("\n", "")
    assert trained == "3 4 5 6.größe 😀 größe 😀."


def test_random_prompts() -> None:
    prompts = random_prompts(10, [1, 500, 3], seed=2)
    assert [len(prompt) for prompt in prompts] == [1, 500, 3]
    assert set(prompts[1]) == set(range(10))
    assert prompts == random_prompts(10, [1, 500, 3], seed=2)
    assert prompts != random_prompts(10, [1, 500, 3], seed=3)
    with pytest.raises(ValueError, match="lengths of at least 1"):
        random_prompts(10, [3, 0])


def test_make_conversations(tmp_path: Path) -> None:
    file = make_conversations(tmp_path / "data" / "train.jsonl", 50, seed=1)
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 50
    turn_counts = set()
    for record in records:
        roles = [turn["role"] for turn in record["conversations"]]
        assert all(turn["content"] for turn in record["conversations"])
        pairs = roles[1:] if roles[0] == "system" else roles
        assert pairs == ["user", "assistant"] * (len(pairs) // 2)
        turn_counts.add(len(pairs))
    assert turn_counts == {2, 4, 6, 8}
    again = make_conversations(tmp_path / "again.jsonl", 50, seed=1)
    other = make_conversations(tmp_path / "other.jsonl", 50, seed=2)
    assert again.read_bytes() == file.read_bytes() != other.read_bytes()
    with pytest.raises(ValueError, match="count of at least 1"):
        make_conversations(tmp_path / "none.jsonl", 0)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mamba", {}, "a kind out of"),
        ("llama", {"hidden_size": 100}, "hidden_size a multiple of 64"),
        ("llama", {"vocab_size": 256}, "vocab_size a multiple of 64"),
        ("llama", {"dtype": "float16"}, "dtype one of"),
        ("llama", {"shards": 0}, "shards"),
        ("qwen3", {"num_attention_heads": 6}, "query heads a multiple"),
        ("qwen3_moe", {"experts_per_token": 9}, "experts a token"),
        ("gemma3", {"num_hidden_layers": 2}, "full_attention_every"),
        ("kimi_k25", {"num_hidden_layers": 1}, "2 layers or more"),
        ("kimi_k25", {"vocab_size": 448}, "vocab_size a multiple of 64"),
    ],
)
def test_bad_options_are_named(kind: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make_model(kind, tmp_path / "model", **options)


def test_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="a new or empty folder"):
        make_model("llama", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]


def test_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="layers"):
        make_model("kimi_k25", tmp_path / "kimi", layers=3)


def test_relative_error_sees_shape_and_nan() -> None:
    ones = torch.ones(3, 4)
    assert relative_error(ones * 1.5, ones) == pytest.approx(0.5)
    assert relative_error(ones.bfloat16(), ones) == 0
    assert not relative_error(ones * float("nan"), ones) < 1
    with pytest.raises(ValueError, match="shape"):
        relative_error(ones[:1], ones)


def test_head_sizes_have_a_cpu_kernel() -> None:
    """vLLM 0.16.0's CPU attention: 32 and 64 work, 16 does not."""
    assert KimiShape().qk_head_dim in (32, 64)
