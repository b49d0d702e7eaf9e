"""A small language to learn: questions whose answers follow from them, over the tiny tokenizers' words.

The answer is a function of the question, so a verifier can learn it and be sure of its next token; and it is more than
a table from one token to the next: the answer depends on words far back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speculators_compat.testing.prompts import COLOURS, DAYS, FRUITS, write_conversations

__all__ = ["answer", "conversation_rows", "make_language"]

#: Lists to walk through; each in an order of its own, wrapped around.
LISTS = {"days": DAYS, "fruits": FRUITS, "colours": COLOURS}
STRIDES = (1, 2, 3)
#: Answers have this many words, always: their end can be learnt from the position.
ANSWER_WORDS = 16


def answer(kind: str, words: Sequence[str], stride: int) -> str:
    """The one right answer to a question.

    Args:
        kind: "after" walks on through a list from its first word; "repeat" goes round the words given.
        words: The question's words; for "after" a single one.
        stride: For "after", how far each step goes.

    Returns:
        ``ANSWER_WORDS`` words and a full stop.
    """
    if kind == "repeat":
        chosen = [words[index % len(words)] for index in range(ANSWER_WORDS)]
    else:
        order = next(members for members in LISTS.values() if words[0] in members)
        start = order.index(words[0])
        chosen = [order[(start + stride * step) % len(order)] for step in range(1, ANSWER_WORDS + 1)]
    return " ".join(chosen) + "."


def make_language(path: str | Path, count: int, seed: int = 0) -> Path:
    """Write conversations of one question and its answer.

    Args:
        path: JSON Lines file to write; missing parent folders are made.
        count: Number of conversations, one a line.
        seed: Seed of the draw; the same seed and count write the same bytes.

    Returns:
        The file: each line ``{"id": ..., "conversations": [{"role": ..., "content": ...}, ...]}``.

    Raises:
        ValueError: If ``count`` is below 1.
    """
    return write_conversations(path, count, seed, "language", _conversation)


def _conversation(generator: random.Random) -> list[dict[str, str]]:
    question, reply = _exchange(generator)
    return [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]


def _exchange(generator: random.Random) -> tuple[str, str]:
    if generator.random() < 0.5:
        words = generator.sample(FRUITS + DAYS, generator.randint(2, 4))
        return f"Repeat {' '.join(words)}.", answer("repeat", words, 1)
    kind = generator.choice(sorted(LISTS))
    word, stride = generator.choice([word for word in LISTS[kind] if _owner(word) == kind]), generator.choice(STRIDES)
    return f"Count from {word} to {'I' * stride}.", answer("after", [word], stride)


def _owner(word: str) -> str:
    """The list that a word names; "orange" is a fruit before it is a colour."""
    return next(kind for kind, members in LISTS.items() if word in members)


def conversation_rows(model_dir: str | Path, conversations: str | Path) -> list[dict[str, list[int]]]:
    """Tokenise conversations of one exchange with a tiny model's own tokenizer.

    Args:
        model_dir: Checkpoint folder of ``make_model``; code in it is run.
        conversations: File of :func:`make_language`.

    Returns:
        For each line ``input_ids`` and ``loss_mask``, 1 on the answer and what ends it.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(model_dir), trust_remote_code=True)
    rows = []
    for line in Path(conversations).read_text(encoding="utf-8").splitlines():
        turns = json.loads(line)["conversations"]
        options = {"tokenize": True, "return_dict": False}
        whole = list(tokenizer.apply_chat_template(turns, **options))
        question = list(tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True, **options))
        # A thinking model's prompt may open a block that a finished turn closes: the answer starts where they part.
        pairs = zip(question, whole, strict=False)
        start = next((index for index, (asked, told) in enumerate(pairs) if asked != told), len(question))
        rows.append({"input_ids": whole, "loss_mask": [int(index >= start) for index in range(len(whole))]})
    return rows
