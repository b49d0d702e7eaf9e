"""The prompts to serve: token ids, made once, so that every head answers the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..drift import UsageError
from .verifier import VerifierFacts

__all__ = ["Prompts", "cut_before_answer", "read_prompts"]

ROLES = {"human": "user", "gpt": "assistant"}


@dataclass(frozen=True)
class Prompts:
    """Prompts and where they come from.

    Attributes:
        token_ids: One list of ids for each prompt.
        source: File or folder that they were read from.
        held_out: Whether the draft has not been trained on them; None if that is not known.
        left_out: Rows without a prompt, or too long for the context.
    """

    token_ids: list[list[int]]
    source: str
    held_out: bool | None
    left_out: int


def read_prompts(
    file: Path | None, run: Path | None, verifier: VerifierFacts, count: int, room: int, trust_remote_code: bool
) -> Prompts:
    """Read up to ``count`` prompts.

    Args:
        file: JSON lines: ``{"conversations": [...]}``, ``{"prompt_token_ids": [...]}``, or prepared rows
            ``{"input_ids": [...], "loss_mask": [...]}``. None: the run's prepared rows.
        run: The run folder that the checkpoint lies in, if it lies in one.
        verifier: Its tokenizer renders conversations; its vocabulary and context bound the ids.
        count: At most this many.
        room: Tokens to keep free behind each prompt for the answer.
        trust_remote_code: Whether the tokenizer may run code of the checkpoint.

    Raises:
        UsageError: There is no source, or no usable prompt in it.
    """
    if file is not None:
        rows, source, held_out = _from_file(file, verifier, trust_remote_code), str(file), None
    else:
        rows, source, held_out = _from_run(run)
    longest = verifier.max_positions - room if verifier.max_positions else None
    kept: list[list[int]] = []
    left_out = 0
    for ids in rows:
        if len(kept) == count:
            break
        if not ids or (longest is not None and len(ids) > longest):
            left_out += 1
            continue
        if min(ids) < 0 or max(ids) >= verifier.vocab_size:
            raise UsageError(
                f"Token ids must be below the verifier's vocabulary of {verifier.vocab_size}.",
                f"ids from {min(ids)} to {max(ids)} in {source}",
                "Use prompts that were tokenised for this verifier.",
            )
        kept.append(ids)
    if not kept:
        raise UsageError(
            f"At least one prompt of 1 to {longest or 'any number of'} tokens is needed.",
            f"none in {source} ({left_out} left out)",
            "Give others with --prompts, or ask for fewer tokens.",
        )
    return Prompts(kept, source, held_out, left_out)


def cut_before_answer(input_ids: Sequence[int], loss_mask: Sequence[int]) -> list[int]:
    """The part of a prepared row before its first trainable token: the question, ready to be answered."""
    first = next((index for index, trained in enumerate(loss_mask) if trained), len(input_ids))
    return [int(token) for token in input_ids[:first]]


def _from_file(file: Path, verifier: VerifierFacts, trust_remote_code: bool) -> Iterator[list[int]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("--prompts must be a readable JSON-lines file.", f"{file}: {error}", "Correct it.") from error
    render = _Renderer(verifier.name, trust_remote_code)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line), render)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                "Each line of --prompts must be a JSON object with `conversations`, `prompt_token_ids`, or `input_ids` "
                "and `loss_mask`.",
                f"line {number} of {file}: {type(error).__name__}: {error}",
                "Correct or remove the line.",
            ) from error


def _row(row: dict[str, Any], render: _Renderer) -> list[int]:
    if "prompt_token_ids" in row:
        return [int(token) for token in row["prompt_token_ids"]]
    if "loss_mask" in row:
        return cut_before_answer(row["input_ids"], row["loss_mask"])
    return render(row["conversations"] if "conversations" in row else row["messages"])


class _Renderer:
    """Conversations into token ids, by the verifier's own chat template; the tokenizer is loaded when needed."""

    def __init__(self, model: str, trust_remote_code: bool) -> None:
        self.model, self.trust_remote_code = model, trust_remote_code
        self.tokenizer: Any = None

    def __call__(self, turns: list[dict[str, Any]]) -> list[int]:
        if self.tokenizer is None:
            from transformers import AutoTokenizer

            self.tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=self.trust_remote_code)
        messages = []
        for turn in turns:
            role = turn.get("role") or turn["from"]
            role = ROLES.get(role, role)
            if role == "assistant":
                break  # the verifier answers the first question itself
            messages.append({"role": role, "content": turn["content"] if "content" in turn else turn["value"]})
        rendered = self.tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return [int(token) for token in rendered]


def _from_run(run: Path | None) -> tuple[Iterator[list[int]], str, bool | None]:
    rows_dir = run / "prepared" / "rows" if run else None
    if run is None or rows_dir is None or not rows_dir.is_dir():
        raise UsageError(
            "Prompts come from the prepared rows of the run that the checkpoint lies in (RUN/checkpoints/EPOCH).",
            f"no {rows_dir}" if rows_dir else "a checkpoint outside a run folder",
            "Give prompts with --prompts.",
        )
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise UsageError(
            "Reading prepared rows needs the package datasets.", str(error), "Give prompts with --prompts."
        ) from error
    rows = load_from_disk(str(rows_dir))
    held_out = _held_out(run, len(rows))
    chosen = range(len(rows)) if held_out is None else held_out
    prompts = (cut_before_answer(row["input_ids"], row["loss_mask"]) for row in (rows[index] for index in chosen))
    return prompts, str(rows_dir), held_out is not None


def _held_out(run: Path, count: int) -> list[int] | None:
    """Rows that the training run kept for validation, by its own split; None if it left no record."""
    path = run / "checkpoints" / "training.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    from ..pipeline.splits import split, split_rows

    if "split" in record:  # of speculators 0.5 and later
        return split_rows(range(count), record["train_ratio"])[1]
    return sorted(split(list(range(count)), record["train_ratio"], record["seed"])[1])
