"""An Arrow table has one type for a column: rows of another shape are an error, or gain keys that nobody wrote."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..conversations import are_arrow_safe, is_list, pack, unpack
from ..drift import Drift, UsageError, wrap
from ._preparation import CACHE_DIR
from ._training import PREPARE, PREPROCESSING


def _load(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hand ``datasets`` a file whose turns it cannot change."""

    def load(train_data_path: str, *rest: Any, **options: Any) -> Any:
        files = _files(train_data_path)
        if files:
            cache_dir = options.get("cache_dir") or (rest[1] if len(rest) > 1 else None) or CACHE_DIR.get()
            packed = _packed(files, cache_dir)
            train_data_path = str(packed) if packed else train_data_path
        return wrapped(train_data_path, *rest, **options)

    return load(*args, **kwargs)


def _unpack(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def normalize(conv: Any, *rest: Any, **options: Any) -> Any:
        return wrapped([unpack(turn) for turn in conv], *rest, **options)

    return normalize(*args, **kwargs)


def _files(given: str) -> list[Path]:
    """The JSON files that upstream reads for a path, in its order; from 0.7 on it takes folders too."""
    path = Path(given)
    if path.is_dir() and hasattr(sys.modules[PREPROCESSING], "_load_hf_dataset"):
        return sorted((*path.rglob("*.json"), *path.rglob("*.jsonl")), key=str)
    return [path] if given.endswith((".jsonl", ".json")) and path.is_file() else []


def _packed(files: list[Path], cache_dir: str | None) -> Path | None:
    """A packed copy of the rows, named by its content, in the cache of ``datasets``; None if they need none."""
    if are_arrow_safe(row for path in files for row in _rows(path)):
        return None
    from datasets import config

    folder = Path(cache_dir or config.HF_DATASETS_CACHE) / "speculators_compat"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile("wb", dir=folder, delete=False) as file:
        for row in (row for path in files for row in _rows(path)):
            line = json.dumps(pack(row)).encode() + b"\n"
            digest.update(line)
            file.write(line)
    target = folder / f"{digest.hexdigest()[:32]}.jsonl"
    Path(file.name).replace(target)
    return target


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON Lines file, or of a file that is one JSON list."""
    whole = is_list(path)
    with path.open(encoding="utf-8") as file:
        texts = [file.read()] if whole else file
        for number, text in enumerate(texts, 1):
            for row in _parsed(text, path, number, whole) if text.strip() else ():
                if not isinstance(row, dict):
                    raise _bad_line(path, number, f"a row of type {type(row).__name__}")
                yield row


def _parsed(text: str, path: Path, number: int, whole: bool) -> list[Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _bad_line(path, number, str(error)) from None
    return content if whole else [content]


def _bad_line(path: Path, number: int, problem: str) -> UsageError:
    return UsageError(
        required="Each line of a JSON Lines file (each item of a JSON list) must be one JSON object.",
        found=f"{path}, line {number}: {problem}",
        way_out="Correct or delete it.",
    )


DRIFT = Drift(
    id="arrow_safe_rows",
    title="Rows of any shape keep their turns, tool calls and arguments as the file has them",
    symptom="DatasetGenerationError: An error occurred while generating the dataset",
    call_site="data_generation/preprocessing.py:load_raw_dataset",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/huggingface/datasets/blob/4.6.0/src/datasets/packaged_modules/json/json.py",
    tripwire=PREPARE,
    sites=(
        wrap(f"{PREPROCESSING}:load_raw_dataset", _load),
        # Inside whole_turns, which reads packed turns itself: drifts apply in the order of their ids.
        wrap(f"{PREPROCESSING}:_normalize_conversation", _unpack),
    ),
)
