"""Prepared rows made by hand, which the extract step starts from, and speculators' own reader of rows and states."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import speculators_compat
from speculators_compat.pipeline import prepare
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.store import write_json
from speculators_compat.testing import random_prompts
from speculators_compat.verifier import text_config


def with_columns(input_ids: list[list[int]], loss_mask: list[list[int]]) -> Any:
    """A data set with the columns that the trainers of speculators 0.5 and later read."""
    speculators_compat.activate()  # datasets may need a drift to read its own rows
    from datasets import Dataset, Features, Sequence, Value

    ids = Sequence(Value("int64"))
    columns = {"input_ids": input_ids, "loss_mask": loss_mask, "seq_len": [len(row) for row in input_ids]}
    features = Features({"input_ids": ids, "loss_mask": ids, "seq_len": Value("int64")})
    rows = Dataset.from_dict(columns, features=features)
    rows.set_format(type="torch")
    return rows


def write_rows(config: RunConfig, count: int, longest: int = 130) -> list[list[int]]:
    """Put ``count`` rows of unequal lengths into a run folder, as the prepare step leaves them.

    Returns:
        Their token ids. Masks are 1 where the id is even.
    """
    lengths = [2 + (37 * index) % longest for index in range(count)]
    prompts = random_prompts(text_config(config.verifier).vocab_size, lengths, seed=count)
    rows = with_columns(prompts, [[int(token % 2 == 0) for token in prompt] for prompt in prompts])
    rows.save_to_disk(str(config.prepared_dir / "rows"))
    record = {"inputs": prepare._inputs(config), "fingerprint": prepare.fingerprint(rows)}
    write_json(config.prepared_dir / "prepared.json", record)
    return prompts


def arrow_dataset(rows: Path, dtype: str, states: Path | None = None, validation_from: float = 0) -> Any:
    """Upstream's data set (0.5 and later), told where the states are as that release is told.

    Args:
        rows: Prepared rows.
        dtype: Of the states.
        states: Their folder; None: in ``rows``.
        validation_from: Share of the rows before the first one of the validation split; 0: all rows, without a split.
    """
    import torch
    from speculators.train import data

    names = inspect.signature(data.ArrowDataset.__init__).parameters
    options: dict[str, Any] = {"on_missing": "raise", "hidden_states_dtype": getattr(torch, dtype)}
    if "train_ratio" in names:
        options |= {"train_ratio": validation_from or 1.0, "split": "val" if validation_from else "train"}
    else:
        options["split_ratio"] = validation_from - 1 if validation_from else 1.0
    if states and "hidden_states_path" in names:
        options["hidden_states_path"] = states
    elif states:
        options["transfer"] = data.FileTransfer(states)
    return data.ArrowDataset(256, rows, **options)
