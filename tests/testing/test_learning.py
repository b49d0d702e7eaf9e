"""Tiny verifiers that learn a small language: what is written back, and what stays."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from speculators_compat.testing import conversation_rows, make_language, make_model, train_verifier
from speculators_compat.testing.checkpoint import read_tensors
from speculators_compat.testing.language import ANSWER_WORDS, answer
from speculators_compat.testing.reference import load_reference_model

pytestmark = pytest.mark.default_pair

SIZES: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 2},
    "kimi_k25": {"num_hidden_layers": 2, "num_experts": 4},
}


def test_answers_follow_from_the_questions():
    assert answer("repeat", ["plum", "pear"], 1).split()[:3] == ["plum", "pear", "plum"]
    assert answer("after", ["Friday"], 2).split()[:3] == ["Sunday", "Tuesday", "Thursday"]
    assert answer("after", ["brown"], 3).split()[0] == "yellow"
    assert len(answer("after", ["apple"], 1).split()) == ANSWER_WORDS
    assert answer("after", ["apple"], 1).endswith(".")


def test_a_question_has_one_answer(tmp_path):
    file = make_language(tmp_path / "l.jsonl", 500)
    replies: dict[str, set[str]] = {}
    for line in file.read_text().splitlines():
        question, reply = (turn["content"] for turn in json.loads(line)["conversations"])
        replies.setdefault(question, set()).add(reply)
    assert all(len(found) == 1 for found in replies.values())
    assert len(replies) > 250
    assert file.read_bytes() == make_language(tmp_path / "again.jsonl", 500).read_bytes()


@pytest.fixture(scope="module", params=sorted(SIZES))
def taught(request, tmp_path_factory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp(request.param)
    folder = make_model(request.param, root / "model", **SIZES[request.param])
    before = read_tensors(folder)
    rows = conversation_rows(folder, make_language(root / "l.jsonl", 200))
    results = [train_verifier(folder, rows, steps=steps, batch_size=8) for steps in (1, 40)]
    return {"folder": folder, "before": before, "rows": rows, "results": results}


def test_rows_mark_the_answer(taught):
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(taught["folder"], trust_remote_code=True)
    for row in taught["rows"][:5]:
        text = tokenizer.decode([i for i, counted in zip(row["input_ids"], row["loss_mask"], strict=True) if counted])
        assert len(text.split(".")[0].split()) == ANSWER_WORDS, text


def test_it_learns(taught):
    first, last = taught["results"]
    assert last.loss < first.loss / 2
    assert last.accuracy > first.accuracy
    assert 0 < last.accuracy <= 1


def test_the_checkpoint_keeps_its_names_shapes_and_dtypes(taught):
    after = read_tensors(taught["folder"])
    before = taught["before"]
    assert {name: (value.shape, value.dtype) for name, value in after.items()} == {
        name: (value.shape, value.dtype) for name, value in before.items()
    }
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.endswith(("q_proj.weight", "q_b_proj.weight")) for name in changed)
    assert any(name.endswith("lm_head.weight") for name in changed)
    assert not any(name.startswith(("vision_tower.", "mm_projector.")) for name in changed)


def test_what_is_written_is_what_was_measured(taught):
    model = load_reference_model(taught["folder"])
    right = counted = 0
    rows = list(taught["rows"])
    random.Random(0).shuffle(rows)  # as train_verifier does: its first tenth is held out
    with torch.inference_mode():
        for row in rows[: len(rows) // 10]:
            ids = torch.tensor([row["input_ids"]])
            guessed = model(input_ids=ids).logits[0, :-1].argmax(-1)
            wanted = torch.tensor(row["loss_mask"])[1:].bool()
            right += int(((guessed == ids[0, 1:]) & wanted).sum())
            counted += int(wanted.sum())
    assert right / counted == pytest.approx(taught["results"][-1].accuracy)


def test_routing_stays(taught):
    """Routers, and the part of the stream that they read, are what ``weights.py`` made them."""
    before, after = taught["before"], read_tensors(taught["folder"])
    gates = [name for name in before if name.endswith("mlp.gate.weight")]
    if not gates:
        return
    code = before[gates[0]].shape[1] // 8
    for name in gates:
        assert torch.equal(before[name], after[name])
    for name in before:
        if name.endswith(("o_proj.weight", "down_proj.weight")) and "language_model" in name:
            assert not after[name][:code].any(), name
    table = "language_model.model.embed_tokens.weight"
    assert torch.equal(before[table][:, :code], after[table][:, :code])


def test_too_few_rows_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="32 rows or more"):
        train_verifier(tmp_path, [{"input_ids": [1], "loss_mask": [1]}])
