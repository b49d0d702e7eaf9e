"""The prepare step beside any release of speculators, against ids and masks put together from the tokenizer alone.

Up to 0.7 a conversation is one row, and every assistant turn of it is trained on. From 0.8 on each assistant turn is a
row of its own: its context is what inference would show (earlier thoughts as the chat template keeps them), the mask
begins where the generation prompt ends, and runs to the last token that the template writes for the turn.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from speculators_compat import UsageError
from speculators_compat.pipeline import prepare
from speculators_compat.pipeline.config import RunConfig, load_config
from speculators_compat.testing import make_kimi_k25, make_llama
from tests.support import shim, speculators_is

pytestmark = pytest.mark.engine

TURNS = speculators_is(">=0.8")  # one row a turn
MAKE = {"kimi": make_kimi_k25, "llama": make_llama}
LAYERS = {"kimi": [0, 1, 3, 5], "llama": [0, 1, 2, 3]}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, thought: str = "", calls: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": content}
    turn |= {"reasoning_content": thought} if thought else {}
    return turn | ({"tool_calls": list(calls)} if calls else {})


def call(name: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
    return {"type": "function", "id": f"functions.{name}:{number}", "function": {"name": name, "arguments": arguments}}


def result(content: str, number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"functions.get:{number}", "content": content}


SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS = [
    [user("Name one fruit."), assistant("apple")],
    [SYSTEM, user("Count from 1 to 3."), assistant("1 2 3."), user("And to 4?"), assistant("1 2 3 4.")],
    [user("one"), assistant("two", "first thought"), user("three"), assistant("four", "second thought")],
    [SYSTEM, user("你好 🙂"), assistant("Привет")],
    [user("a"), assistant("b"), user("c")],
]
# Columns of an Arrow table have one type: content of two kinds, and arguments of two shapes, for Kimi's template.
MIXED = [
    [user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]), assistant("three")],
    [
        user("weather?"),
        assistant("", "ask", (call("get", {"city": "Bonn"}, 0),)),
        result("rain", 0),
        assistant("It rains.", "done"),
    ],
    [user("both"), assistant("", "", (call("get", {"n": 1}, 0), call("get", {"city": 2}, 1)))],
]
DROPPED = [{"role": "critic", "content": "x"}, assistant("y")]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def kimi_spans(turns: list[dict[str, Any]], shown: int | None = None) -> list[list[tuple[str, bool]]]:
    """Text of every turn, and whether the verifier writes it; ``shown``: the turn whose row it is (0.8 and later)."""
    last_user = max(number for number, turn in enumerate(turns) if turn["role"] == "user")
    spans = []
    for number, turn in enumerate(turns):
        text = text_of(turn["content"])
        if turn["role"] == "assistant":
            kept = shown is None or number > last_user or number == shown
            thought = turn.get("reasoning_content", "") if kept else ""
            calls = "".join(
                f"<|tool_call_begin|>{item['id']}<|tool_call_argument_begin|>"
                f"{json.dumps(item['function']['arguments'])}<|tool_call_end|>"
                for item in turn.get("tool_calls", ())
            )
            calls = calls and f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
            # The generation prompt of 0.8's rule opens the thinking block.
            opened = "<|im_assistant|>assistant<|im_middle|>"
            own = f"{thought}</think>{text}{calls}<|im_end|>"
            spans.append([(opened, False), ("<think>", shown is None), (own, True)])
        elif turn["role"] == "user":
            spans.append([(f"<|im_user|>user<|im_middle|>{text}<|im_end|>", False)])
        else:
            head = f"## Return of {turn['tool_call_id']}\n" if "tool_call_id" in turn else ""
            spans.append([(f"<|im_system|>{turn['role']}<|im_middle|>{head}{text}<|im_end|>", False)])
    if turns[0]["role"] != "system":
        spans[0].insert(0, ("<|im_system|>system<|im_middle|>You are a patient teacher.<|im_end|>", False))
    return spans


def llama_spans(turns: list[dict[str, Any]], shown: int | None = None) -> list[list[tuple[str, bool]]]:
    """The same for ChatML, which shows no thoughts; the line break after a turn is the template's up to 0.7."""
    return [
        [
            (f"<|im_start|>{turn['role']}\n", False),
            (text_of(turn["content"]) + "<|im_end|>", turn["role"] == "assistant"),
            ("\n", turn["role"] == "assistant" and shown is not None),
        ]
        for turn in turns
    ]


SPANS = {"kimi": kimi_spans, "llama": llama_spans}


def expected(kind: str, tokenizer: Any, turns: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    """Rows of one conversation: ids and mask."""
    if not TURNS:
        return [tokens(tokenizer, SPANS[kind](turns), None)]
    ends = [number for number, turn in enumerate(turns) if turn["role"] == "assistant" and number]
    return [tokens(tokenizer, SPANS[kind](turns[: end + 1], end), end) for end in ends]


def tokens(tokenizer: Any, spans: list[list[tuple[str, bool]]], only: int | None) -> tuple[list[int], list[int]]:
    ids, mask = [], []
    for number, turn in enumerate(spans):
        for text, written in turn:
            part = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += part
            mask += [int(written and only in (None, number))] * len(part)
    return ids, mask


@pytest.fixture(scope="module")
def verifiers(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("verifiers")
    return {kind: make(folder / kind) for kind, make in MAKE.items()}


@pytest.fixture(scope="module")
def tokenizers(verifiers) -> dict[str, Any]:
    from transformers import AutoTokenizer

    return {kind: AutoTokenizer.from_pretrained(path, trust_remote_code=True) for kind, path in verifiers.items()}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def configure(verifiers: dict[str, Path], kind: str, folder: Path, data: Path | str, **changes: Any) -> RunConfig:
    content = {
        "model": str(verifiers[kind]),
        "output": str(folder / "run"),
        "trust_remote_code": kind == "kimi",
        "layer_ids": LAYERS[kind],
        "seq_length": changes.pop("seq_length", 512),
        "vocab": {"draft_vocab_size": 64},
        "prepare": {"data": str(data), "num_proc": 2, **changes},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_config(path)


def run(config: RunConfig) -> dict[str, Any]:
    """Run the step; gives its report."""
    with shim():
        prepare.run(config)
    return json.loads((config.steps_dir / "prepare.json").read_text())


def pairs(config: RunConfig) -> list[tuple[list[int], list[int]]]:
    """Rows as the later steps load them; their order is the release's shuffle."""
    with shim():
        rows, _ = prepare.load_rows(config)
        return sorted((row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in rows)


def wanted(kind: str, tokenizers: dict[str, Any], conversations: list[Any]) -> list[tuple[list[int], list[int]]]:
    return sorted(row for turns in conversations for row in expected(kind, tokenizers[kind], turns))


def as_rows(conversations: list[Any]) -> list[dict[str, Any]]:
    return [{"conversations": turns} for turns in conversations]


@pytest.mark.parametrize(("kind", "conversations"), [("kimi", [*CONVERSATIONS, *MIXED]), ("llama", CONVERSATIONS)])
def test_ids_and_masks_of_a_file(verifiers, tokenizers, tmp_path, kind, conversations):
    data = write(tmp_path / "data.jsonl", as_rows([*conversations, DROPPED]))
    config = configure(verifiers, kind, tmp_path, data)
    report = run(config)
    assert pairs(config) == wanted(kind, tokenizers, conversations)
    assert report["samples"] == len(wanted(kind, tokenizers, conversations))
    assert report["conversations"] == len(conversations) + 1
    assert [count for reason, count in report["dropped"].items() if "has the role 'critic'" in reason] == [1]
    assert sum(report["dropped"].values()) == 1
    assert report["truncated"] == {}
    assert not list(config.output.glob(".prepare-*"))
    assert not (config.output / "token_freq.pt").exists()


def test_the_rows_are_what_the_releases_own_data_set_reads(verifiers, tmp_path):
    config = configure(verifiers, "llama", tmp_path, write(tmp_path / "data.jsonl", as_rows(CONVERSATIONS)))
    run(config)
    folder = config.prepared_dir / "rows"
    with shim():
        from datasets import load_from_disk

        stored = load_from_disk(str(folder))
        columns = ["input_ids", "loss_mask", *(["seq_len"] if speculators_is(">=0.5") else [])]
        assert sorted(stored.column_names) == columns
        assert {str(stored[0][name].dtype) for name in columns} == {"torch.int64"}
        assert stored.features["loss_mask"].feature.dtype == "int64"
        if speculators_is(">=0.5"):
            from speculators.train.data import ArrowDataset

            dataset = ArrowDataset(512, str(folder))
            assert list(dataset.approx_lengths) == [len(row["input_ids"]) for row in stored]
            assert dataset.data[0]["loss_mask"].equal(stored[0]["loss_mask"])


def test_rows_that_are_tokenised_already_keep_their_masks(verifiers, tokenizers, tmp_path):
    given = [{"input_ids": [5, 6, 7, 8], "loss_mask": [0, 1, 0, 1]}, {"input_ids": [9, 9, 9], "loss_mask": [0, 1, 1]}]
    bad = [{"input_ids": [5, 6], "loss_mask": [0, 1, 1]}, {"input_ids": [5, 6], "loss_mask": [1, 0]}]
    talk = CONVERSATIONS[0]
    config = configure(
        verifiers, "kimi", tmp_path, write(tmp_path / "data.jsonl", [*given, *bad, {"conversations": talk}])
    )
    report = run(config)
    rows = [(row["input_ids"], row["loss_mask"]) for row in given]
    assert pairs(config) == sorted([*rows, *expected("kimi", tokenizers["kimi"], talk)])
    assert report["dropped"] == {"input_ids has 2 entries, loss_mask 3": 1, "no trainable token": 1}


def test_thoughts_can_be_left_out_of_the_mask(verifiers, tokenizers, tmp_path):
    data = write(tmp_path / "data.jsonl", as_rows(CONVERSATIONS))
    run(config := configure(verifiers, "kimi", tmp_path, data, thinking="mask"))
    close = tokenizers["kimi"].convert_tokens_to_ids("</think>")
    for (ids, mask), (same, whole) in zip(pairs(config), wanted("kimi", tokenizers, CONVERSATIONS), strict=True):
        assert ids == same
        hidden, inside = [], False
        for token, weight in zip(ids, whole, strict=True):  # a trainable run begins with its thoughts
            inside = bool(weight) and (inside or not hidden or not hidden[-1][1])
            hidden.append((0 if inside else weight, weight))
            inside = inside and token != close
        assert mask == [weight for weight, _ in hidden]
        assert sum(mask) < sum(whole)


def test_cut_and_missing_samples_are_counted(verifiers, tokenizers, tmp_path):
    long = [user("one"), assistant("word " * 40), user("two"), assistant("three")]
    data = write(tmp_path / "data.jsonl", as_rows([CONVERSATIONS[0], long]))
    report = run(config := configure(verifiers, "kimi", tmp_path, data, seq_length=60))
    assert report["truncated"] == {"longer than 60 tokens": 1}
    assert report["dropped"] == ({"its context fills 60 tokens": 1} if TURNS else {})
    (ids, mask), *_ = expected("kimi", tokenizers["kimi"], long)
    assert (ids[:60], mask[:60]) in pairs(config)


def test_at_most_so_many_samples(verifiers, tokenizers, tmp_path):
    data = write(tmp_path / "data.jsonl", as_rows([[user(f"one {n}"), assistant(f"two {n}")] for n in range(20)]))
    report = run(config := configure(verifiers, "llama", tmp_path, data, max_samples=5))
    assert report["samples"] == report["conversations"] == len(pairs(config)) == 5
    assert report["dropped"] == {}


def test_nothing_to_train_on_is_refused_with_the_reasons(verifiers, tmp_path):
    config = configure(verifiers, "llama", tmp_path, write(tmp_path / "data.jsonl", as_rows([DROPPED])))
    with pytest.raises(UsageError):
        run(config)
    assert not config.prepared_dir.exists()


@pytest.mark.parametrize(
    ("option", "last"), [({"assistant_pattern": "a(.*)b"}, "0.7.0"), ({"turn_dropout": True}, "0.6.0")]
)
def test_an_option_that_the_release_lacks_is_refused_by_name(verifiers, tmp_path, option, last):
    (name,) = option
    data = write(tmp_path / "data.jsonl", as_rows(CONVERSATIONS))
    config = configure(verifiers, "llama", tmp_path, data, **option)
    if speculators_is(f"<={last}"):
        if name == "turn_dropout":
            assert run(config)["samples"]
        return
    with pytest.raises(UsageError, match=rf"prepare.{name} needs speculators {last} or older. Found: speculators 0"):
        run(config)


def test_a_name_that_the_release_does_not_know_is_refused(verifiers, tmp_path):
    name = "sharegpt" if speculators_is(">=0.9") else "no-such-data"
    with pytest.raises(UsageError, match=r"must be a .json or .jsonl file.*speculators 0"):
        run(configure(verifiers, "llama", tmp_path, name))


PROCESSOR = """
from transformers import ProcessorMixin

class KimiK25Processor(ProcessorMixin):
    attributes = ["image_processor", "tokenizer"]
    image_processor_class = "AutoImageProcessor"
    tokenizer_class = "AutoTokenizer"

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **kwargs):
        super().__init__(image_processor, tokenizer, chat_template=chat_template)
"""


def test_text_for_a_model_whose_processor_takes_pictures_too(verifiers, tokenizers, tmp_path):
    """As Kimi-K2.5's own checkpoint has it: AutoProcessor, which 0.6 and later load, is no tokenizer."""
    model = shutil.copytree(verifiers["kimi"], tmp_path / "kimi")
    (model / "kimi_k25_processor.py").write_text(PROCESSOR)
    path = model / "preprocessor_config.json"
    content = json.loads(path.read_text())
    content["auto_map"]["AutoProcessor"] = "kimi_k25_processor.KimiK25Processor"
    path.write_text(json.dumps(content))
    from transformers import AutoProcessor, ProcessorMixin

    assert isinstance(AutoProcessor.from_pretrained(model, trust_remote_code=True), ProcessorMixin)
    data = write(tmp_path / "data.jsonl", as_rows([*CONVERSATIONS, *MIXED]))
    run(config := configure({"kimi": model}, "kimi", tmp_path, data))
    assert pairs(config) == wanted("kimi", tokenizers, [*CONVERSATIONS, *MIXED])


@pytest.mark.skipif(not speculators_is(">=0.7"), reason="folders are read from 0.7 on")
def test_a_folder_of_files(verifiers, tokenizers, tmp_path):
    write(tmp_path / "data" / "a.jsonl", as_rows(MIXED))
    write(tmp_path / "data" / "b" / "c.jsonl", as_rows(CONVERSATIONS))
    run(config := configure(verifiers, "kimi", tmp_path, tmp_path / "data"))
    assert pairs(config) == wanted("kimi", tokenizers, [*MIXED, *CONVERSATIONS])
    write(tmp_path / "data" / "a.jsonl", as_rows(MIXED[:1]))
    with pytest.raises(UsageError, match="data_sha256"):
        run(config)


def test_the_same_file_gives_the_same_rows_and_another_is_refused(verifiers, tmp_path):
    data = write(tmp_path / "data.jsonl", as_rows(CONVERSATIONS))
    config = configure(verifiers, "llama", tmp_path, data)
    first = run(config)["fingerprint"]
    assert run(config)["fingerprint"] == first
    write(data, as_rows(CONVERSATIONS[:2]))
    with pytest.raises(UsageError, match="data_sha256"):
        run(config)
