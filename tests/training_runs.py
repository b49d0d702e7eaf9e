"""A run folder as `prepare` and `extract` leave it, without an engine: the states come from transformers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

# torch, datasets and speculators are imported by the functions: the environment without them must collect the tests.

LAYERS = 5
LAYER_IDS = [1, 2, 3, 4]


def make_run(folder: Path, verifier: Path, count: int = 24, **train: Any):
    """Write rows, states and vocabulary of ``count`` conversations; gives the configuration of the run."""
    from speculators_compat.pipeline import vocab
    from speculators_compat.pipeline.config import RunConfig
    from speculators_compat.testing import conversation_rows, make_language

    folder.mkdir(parents=True, exist_ok=True)
    data = make_language(folder / "language.jsonl", count, seed=1)
    config = RunConfig.model_validate(
        {
            "model": str(verifier),
            "output": str(folder / "run"),
            "trust_remote_code": True,
            "seq_length": 256,
            "layer_ids": LAYER_IDS,
            "prepare": {"data": str(data), "num_proc": 1},
            "vocab": {"draft_vocab_size": 384},
            "train": {
                "epochs": 2,
                "train_ratio": 0.75,
                "lr": 2e-3,
                "total_seq_len": 256,
                "num_workers": 0,
                "warmup_steps": 1,
                "draft": {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 128},
                **train,
            },
        }
    )
    rows = [{**row, "seq_len": len(row["input_ids"])} for row in conversation_rows(verifier, data)]
    write_rows(config, rows)
    write_states(config, verifier, rows)
    vocab.run(config)
    return config


def write_rows(config, rows: list[dict[str, Any]]) -> str:
    """``prepared/`` as the prepare step leaves it."""
    from datasets import Dataset

    from speculators_compat.pipeline import prepare
    from speculators_compat.store import write_json

    found = Dataset.from_list(rows).with_format("torch")
    found.save_to_disk(str(config.prepared_dir / "rows"))
    fingerprint = prepare.fingerprint(found)
    write_json(
        config.prepared_dir / "prepared.json", {"inputs": prepare._inputs(config), "fingerprint": fingerprint}
    )
    return fingerprint


def write_states(config, verifier: Path, rows: list[dict[str, Any]]) -> None:
    """``data/`` as the extract step leaves it for the trainers of speculators 0.5 and later."""
    import torch
    from safetensors.torch import save_file

    from speculators_compat.pipeline.manifest import manifest_of
    from speculators_compat.pipeline.prepare import load_rows
    from speculators_compat.pipeline.verifier import check_run
    from speculators_compat.store import SampleStore
    from speculators_compat.testing import reference_hidden_states

    _, fingerprint = load_rows(config)
    store = SampleStore(config.data_dir, manifest_of(config, check_run(config), fingerprint, len(rows)))
    states = reference_hidden_states(verifier, [row["input_ids"] for row in rows], LAYER_IDS)
    folder = config.data_dir / "hidden_states"
    folder.mkdir(parents=True)
    with store.writing():
        for index, (row, found) in enumerate(zip(rows, states, strict=True)):
            ids, mask = (torch.tensor(row[name]) for name in ("input_ids", "loss_mask"))
            stored = [layer.to(torch.bfloat16) for layer in found]
            store.write(index, {"input_ids": ids, "loss_mask": mask, "hidden_states": stored})
            content = {"hidden_states": torch.stack(stored, dim=1).contiguous(), "token_ids": ids}
            save_file(content, folder / f"hs_{index}.safetensors")
        store.write_lengths({index: len(row["input_ids"]) for index, row in enumerate(rows)})
    assert asdict(store.manifest)
