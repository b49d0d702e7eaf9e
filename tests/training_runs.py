"""A run folder that is ready to train, without an engine: the states come from transformers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# torch, datasets and speculators are imported by the functions, the shim by none of them: a spawned process that finds
# `loaded_with_the_shim` here must not get the shim from here.

LAYERS = 5
LAYER_IDS = [1, 2, 3, 4]
ROWS = 24
#: Small blocks: a CPU lays the whole mask out.
BLOCKS = {"max_anchors": 16, "block_size": 4}


def make_verifier(folder: Path) -> Path:
    """A tiny Kimi-K2.5 of five layers."""
    from speculators_compat.testing import make_kimi_k25

    return make_kimi_k25(folder, num_hidden_layers=LAYERS, embedding_std=0.1)


def make_run(folder: Path, verifier: Path, vocabulary: int = 384, **train: Any) -> Any:
    """Prepare conversations, write their states and choose the vocabulary.

    Args:
        folder: Gets ``run/`` and the conversations.
        verifier: From :func:`make_verifier`.
        vocabulary: Tokens of the draft.
        **train: Fields of the section ``train``.

    Returns:
        The run's configuration.
    """
    from speculators_compat.pipeline import prepare, vocab
    from speculators_compat.testing import make_language

    folder.mkdir(parents=True, exist_ok=True)
    data = make_language(folder / "language.jsonl", ROWS, seed=1)
    config = configuration(folder / "run", verifier, data, vocabulary, **train)
    prepare.run(config)
    write_states(config, verifier)
    vocab.run(config)
    return config


def configuration(output: Path, verifier: Path, data: Path, vocabulary: int = 384, **train: Any) -> Any:
    """The configuration of a small run."""
    from speculators_compat.pipeline.config import RunConfig

    draft = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 128}
    small = {"epochs": 2, "train_ratio": 0.75, "lr": 2e-3, "total_seq_len": 256, "num_workers": 0, "warmup_steps": 1}
    return RunConfig.model_validate(
        {
            "model": str(verifier),
            "output": str(output),
            "trust_remote_code": True,
            "seq_length": 256,
            "layer_ids": LAYER_IDS,
            "prepare": {"data": str(data), "num_proc": 1},
            "vocab": {"draft_vocab_size": vocabulary},
            "train": {**small, "draft": draft, **train},
        }
    )


def with_training(config: Any, output: Path, **train: Any) -> Any:
    """The same run in another folder, ready to train as these fields of ``train`` say."""
    import shutil

    for name in ("prepared", "data", "vocab"):
        shutil.copytree(config.output / name, output / name)
    raw = config.model_dump(mode="json", exclude_unset=True)
    return type(config).model_validate({**raw, "output": str(output), "train": {**raw["train"], **train}})


def write_states(config: Any, verifier: Path) -> None:
    """``data/`` as the extract step leaves it for the installed trainer."""
    import torch

    from speculators_compat.pipeline.manifest import manifest_of
    from speculators_compat.pipeline.prepare import load_rows
    from speculators_compat.pipeline.verifier import check_run
    from speculators_compat.store import SampleStore
    from speculators_compat.testing import reference_hidden_states

    rows, fingerprint = load_rows(config)
    store = SampleStore(config.data_dir, manifest_of(config, check_run(config), fingerprint, len(rows)))
    states = reference_hidden_states(verifier, [row["input_ids"].tolist() for row in rows], LAYER_IDS)
    with store.writing():
        for index, (row, found) in enumerate(zip(rows, states, strict=True)):
            store.write(index, {**row, "hidden_states": [layer.to(torch.bfloat16) for layer in found]})
        store.write_lengths({index: len(row["input_ids"]) for index, row in enumerate(rows)})


def options_of(algorithm: str) -> dict[str, Any]:
    """Options that keep a draft of this kind small."""
    if algorithm == "eagle3":
        return {}
    return {"num_depths": 3} if algorithm == "peagle" else BLOCKS


def loaded_with_the_shim(batch: Sequence[Any]) -> bool:
    """A collate function: whether the process that loads has the shim."""
    return "speculators_compat" in sys.modules
