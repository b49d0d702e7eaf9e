"""Prompts and conversations for tests and demonstrations, reproducible from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from speculators_compat.testing.checkpoint import require

FRUITS = ("apple", "banana", "cherry", "grape", "lemon", "mango", "orange", "peach", "pear", "plum")
COLOURS = ("red", "orange", "yellow", "green", "blue", "violet", "black", "white", "grey", "brown")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SYSTEM_PROMPTS = ("You answer briefly.", "You are a patient teacher.", "Follow the pattern.")
_QUESTION_WORDS = ("Repeat", "the", "word", "times", "Count", "from", "to", "Name", "days", "after")
_CHAT_WORDS = ("system", "user", "assistant", "tool", "think", "image", "and", "is", "in", "of")
#: Words of the questions, answers and templates, for the tokenizers to know.
WORDS = (
    *FRUITS,
    *(colour for colour in COLOURS if colour not in FRUITS),
    *DAYS,
    *sorted({word.strip(".") for prompt in SYSTEM_PROMPTS for word in prompt.split()}),
    *_QUESTION_WORDS,
    *_CHAT_WORDS,
)


def random_prompts(vocab_size: int, lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Draw prompts of the given lengths, uniformly over the vocabulary.

    Args:
        vocab_size: Ids are drawn from 0 to ``vocab_size - 1``.
        lengths: Tokens of each prompt; unequal lengths are what shows rows in a wrong order.
        seed: Seed of the draw.

    Returns:
        One list of token ids for each length.

    Raises:
        ValueError: If a length or ``vocab_size`` is below 1.
    """
    require(vocab_size >= 1, "vocab_size of at least 1", vocab_size, "give the model's own")
    require(min(lengths, default=1) >= 1, "lengths of at least 1", list(lengths), "drop the others")
    generator = random.Random(seed)  # noqa: S311 - a reproducible fixture, no secret
    return [[generator.randrange(vocab_size) for _ in range(length)] for length in lengths]


def make_conversations(path: str | Path, count: int, seed: int = 0) -> Path:
    """Write conversations that a small draft can learn.

    Answers repeat, count or walk through a list, so that the next token mostly follows from the
    ones before it. Conversations have one to four exchanges, some begin with a system turn.

    Args:
        path: JSON Lines file to write; missing parent folders are made.
        count: Number of conversations, one a line.
        seed: Seed of the draw; the same seed and count write the same bytes.

    Returns:
        The file: each line ``{"id": ..., "conversations": [{"role": ..., "content": ...}, ...]}``.

    Raises:
        ValueError: If ``count`` is below 1.
    """
    return write_conversations(path, count, seed, "tiny", _conversation)


def write_conversations(
    path: str | Path, count: int, seed: int, name: str, draw: Callable[[random.Random], list[dict[str, str]]]
) -> Path:
    """Write ``count`` conversations that ``draw`` makes, one a line, with ids ``name-0``, ``name-1``, ...

    Raises:
        ValueError: If ``count`` is below 1.
    """
    require(count >= 1, "count of at least 1", count, "ask for one conversation or more")
    generator = random.Random(seed)  # noqa: S311 - a reproducible fixture, no secret
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="\n") as lines:
        for index in range(count):
            lines.write(json.dumps({"id": f"{name}-{index}", "conversations": draw(generator)}) + "\n")
    return file


def _conversation(generator: random.Random) -> list[dict[str, str]]:
    turns = []
    if generator.random() < 0.3:
        turns.append({"role": "system", "content": generator.choice(SYSTEM_PROMPTS)})
    for _ in range(generator.randint(1, 4)):
        question, answer = generator.choice((_repeat, _count, _walk))(generator)
        turns.append({"role": "user", "content": question})
        turns.append({"role": "assistant", "content": answer})
    return turns


def _repeat(generator: random.Random) -> tuple[str, str]:
    word, times = generator.choice(FRUITS + COLOURS), generator.randint(2, 20)
    return f"Repeat the word {word} {times} times.", " ".join([word] * times) + "."


def _count(generator: random.Random) -> tuple[str, str]:
    first, length = generator.randint(0, 50), generator.randint(3, 30)
    numbers = " ".join(str(number) for number in range(first, first + length))
    return f"Count from {first} to {first + length - 1}.", numbers + "."


def _walk(generator: random.Random) -> tuple[str, str]:
    start, length = generator.randrange(len(DAYS)), generator.randint(2, 14)
    days = [DAYS[(start + step) % len(DAYS)] for step in range(1, length + 1)]
    return f"Name the {length} days after {DAYS[start]}.", ", ".join(days) + "."
