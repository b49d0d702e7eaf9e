"""Turns lose what speculators' normalisation does not know: reasoning, tool calls, tool results, parts of content."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..conversations import Turn, is_arrow_safe, pack, read_turns
from ..drift import Drift, UsageError, wrap
from ._preparation import around_batch, column
from ._training import BUILD_DATASET, PREPROCESSING

log = logging.getLogger("speculators_compat")


def _normalize(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Turn]:
    """Upstream's contract: a conversation in, its turns out; none if it has to be dropped."""
    try:
        return read_turns(*args, **kwargs)
    except ValueError as error:
        log.warning("Conversation is dropped: %s", error)
        return []


def _warn_of_tools(wrapped: Any, examples: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> Any:
    declared = sum(1 for tools in column(examples, "tools") if tools)
    if declared and getattr(tokenizer, "is_fast", False):
        log.warning(
            "%d conversations are rendered without their tool declarations: speculators gives the template none.",
            declared,
        )
    return wrapped(examples, tokenizer, *args, **kwargs)


def _load(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hand ``datasets`` a file whose turns it cannot change."""

    def load(train_data_path: str, num_proc: int = 8, cache_dir: str | None = None) -> Any:
        if train_data_path.endswith((".jsonl", ".json")):
            train_data_path = str(_arrow_safe(Path(train_data_path), cache_dir))
        return wrapped(train_data_path, num_proc=num_proc, cache_dir=cache_dir)

    return load(*args, **kwargs)


def _arrow_safe(path: Path, cache_dir: str | None) -> Path:
    """The file itself, or a packed copy, named by its content, in the cache of ``datasets``."""
    if all(map(is_arrow_safe, _rows(path))):
        return path
    from datasets import config

    folder = Path(cache_dir or config.HF_DATASETS_CACHE) / "speculators_compat"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile("wb", dir=folder, delete=False) as file:
        for row in _rows(path):
            line = json.dumps(pack(row)).encode() + b"\n"
            digest.update(line)
            file.write(line)
    target = folder / f"{digest.hexdigest()[:32]}.jsonl"
    Path(file.name).replace(target)
    return target


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON Lines file, or of a file that is one JSON list."""
    with path.open(encoding="utf-8") as file:
        is_list = file.read(1) == "["
        file.seek(0)
        texts = [file.read()] if is_list else file
        for number, text in enumerate(texts, 1):
            for row in _parsed(text, path, number, is_list) if text.strip() else ():
                if not isinstance(row, dict):
                    raise _bad_line(path, number, f"a row of type {type(row).__name__}")
                yield row


def _parsed(text: str, path: Path, number: int, is_list: bool) -> list[Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _bad_line(path, number, str(error)) from None
    return content if is_list else [content]


def _bad_line(path: Path, number: int, problem: str) -> UsageError:
    return UsageError(
        required="Each line of a JSON Lines file (each item of a JSON list) must be one JSON object.",
        found=f"{path}, line {number}: {problem}",
        way_out="Correct or delete it.",
    )


DRIFT = Drift(
    id="whole_turns",
    title="Turns keep their reasoning, tool calls, tool results and parts, or are dropped with a reason",
    symptom="no error: \"Unknown role 'tool', skipping turn\" is logged at most, reasoning and tool calls are gone",
    silent=True,
    call_site="data_generation/preprocessing.py:_normalize_conversation",
    speculators=">=0.3.0,<0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/preprocessing.py#L62",
    tripwire=BUILD_DATASET,
    sites=(
        # Also names the change in the cache of datasets, which does not see the one below.
        around_batch("whole_turns/1", _warn_of_tools),
        wrap(f"{PREPROCESSING}:_normalize_conversation", _normalize),
        wrap(f"{PREPROCESSING}:load_raw_dataset", _load),
    ),
)
