"""Makes what benchmarks/gpu_int4_and_serving.py serves: a verifier that has learnt a small language, and its draft.

    python tools/gpu_fixtures.py [--out build/gpu] [--work build/gpu-work]

Runs on a CPU beside vLLM and speculators (the engine settings of tools/engine.env). ``--out`` is what a GPU machine
needs: ``verifier``, ``draft``, ``prompts.jsonl`` (held-out questions), ``fixtures.json`` (how it was made).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from speculators_compat.testing import conversation_rows, make_language, make_model, train_verifier

#: Head size 64 and widths that every GPU kernel takes. Few layers, so that one layer more or less tells.
VERIFIER = {
    "num_hidden_layers": 5,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 512,
}
LAYER_IDS = [1, 2, 3, 4]
DRAFT = {"head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512}


def configuration(arguments: argparse.Namespace, verifier: Path, conversations: Path) -> dict[str, Any]:
    """The run: like a user's, at a tiny size."""
    return {
        "model": str(verifier),
        "output": str(arguments.work / "run"),
        "seq_length": 64,
        "layer_ids": LAYER_IDS,
        "prepare": {"data": str(conversations), "num_proc": 1},
        "extract": {"prompts_per_call": 64, "dtype": "bfloat16"},
        "vocab": {"draft_vocab_size": 256},
        "train": {
            "epochs": arguments.epochs,
            "lr": 2e-3,
            "total_seq_len": 256,
            "num_workers": 0,
            "noise_std": 0.0,
            "scheduler": "cosine",
            "draft": DRAFT,
        },
    }


def main() -> None:
    """Make everything anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    parser.add_argument("--work", type=Path, default=Path("build/gpu-work"))
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--keep-verifier", action="store_true", help="train another draft for the verifier in --out")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    started = time.monotonic()
    verifier = arguments.out / "verifier"
    if not arguments.keep_verifier:
        shutil.rmtree(arguments.out, ignore_errors=True)
    for folder in (arguments.out / "draft", arguments.work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    facts: dict[str, Any] = {}
    if not arguments.keep_verifier:
        make_model("llama", verifier, **VERIFIER)
        language = make_language(arguments.work / "language.jsonl", 4000)
        taught = train_verifier(verifier, conversation_rows(verifier, language), steps=arguments.steps)
        facts["verifier"] = dataclasses.asdict(taught)
        print("verifier", taught, f"{time.monotonic() - started:.0f} s", flush=True)
    conversations = make_language(arguments.work / "conversations.jsonl", arguments.samples, seed=1)
    config = arguments.work / "run.yaml"
    config.write_text(yaml.safe_dump(configuration(arguments, verifier, conversations)), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "speculators_compat", "pipeline", str(config)], check=True)
    checkpoint = arguments.work / "run" / "checkpoints" / str(arguments.epochs - 1)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(checkpoint / name, arguments.out / "draft" / name)
    # Questions of a seed that neither the verifier nor the draft has seen.
    make_language(arguments.out / "prompts.jsonl", 256, seed=2)
    summary = json.loads((arguments.work / "run" / "summary.json").read_text(encoding="utf-8"))
    facts |= {"train": summary["train"], "vocab": summary["vocab"]}
    (arguments.out / "fixtures.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"{arguments.out}: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
