"""A draft trained by the pipeline against EAGLE-3 in plain PyTorch, on a Kimi-K2.5 that has learnt a small language.

The reference sees states that transformers computes, at the layers that the saved config names, and targets that are
the verifier's own logits. The trained draft is loaded into the same plain model and measured there: extraction, final
norm, layer ids, vocabulary and training all have to be right for it to keep up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from speculators_compat.drifts.draft_final_norm import DRIFT
from speculators_compat.pipeline.train import METRICS, split
from speculators_compat.testing import conversation_rows, make_kimi_k25, make_language, train_verifier
from speculators_compat.testing.checkpoint import read_tensors, write_tensors
from tests.support import applies

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LAYERS = 5
LAYER_IDS = [1, 2, 3, 4]  # one layer shifts the states by a fifth of the model
HEADS, HEAD_DIM, WIDTH = 4, 32, 256
# Two seeds of the reference differ by a point at this size, by three at a third of the conversations.
CONVERSATIONS, EPOCHS, RATE, TTT = 1440, 3, 2e-3, 3
TRAIN_RATIO = 0.8
POINTS = 0.02
SPREAD = 3  # powers of two


@pytest.fixture(scope="module")
def verifier(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    path = make_kimi_k25(folder / "kimi", num_hidden_layers=LAYERS, embedding_std=0.1)
    rows = conversation_rows(path, make_language(folder / "language.jsonl", 2000))
    assert train_verifier(path, rows, steps=300).accuracy > 0.8
    spread_final_norm(path)
    make_language(folder / "prompts.jsonl", 256, seed=2)  # for serve-check by hand: docs/pipeline.md
    return path


def spread_final_norm(path: Path) -> None:
    """Let the final norm's weights differ as a large model's do; the logits stay what they were, bit for bit.

    A tiny model's are all near 1: without the norm its targets would prefer the same tokens.
    """
    import torch

    tensors = read_tensors(path)
    norm, head = (
        next(name for name in tensors if name.endswith(end)) for end in ("model.norm.weight", "lm_head.weight")
    )
    powers = torch.randint(-SPREAD, SPREAD + 1, tensors[norm].shape, generator=torch.Generator().manual_seed(0))
    factors = torch.exp2(powers.float())
    tensors[norm], tensors[head] = tensors[norm] * factors, tensors[head] / factors
    write_tensors(path, tensors, shards=len(list(path.glob("*.safetensors"))))


@pytest.fixture(scope="module")
def config(verifier) -> dict:
    data = make_language(verifier.parent / "conversations.jsonl", CONVERSATIONS, seed=1)
    return {
        "model": str(verifier),
        "output": str(verifier.parent / "run"),
        "trust_remote_code": True,
        "seq_length": 256,
        "layer_ids": LAYER_IDS,
        "prepare": {"data": str(data), "num_proc": 1},
        "extract": {"dtype": "float32", "prompts_per_call": 64},
        "vocab": {"draft_vocab_size": 384},
        "train": {
            "epochs": EPOCHS,
            "train_ratio": TRAIN_RATIO,
            "lr": RATE,
            "total_seq_len": 256,
            "num_workers": 0,
            "noise_std": 0.0,
            "warmup_steps": 1,
            "ttt_steps": TTT,
            "use_off_policy_tokens": True,
            "draft": {
                "num_attention_heads": HEADS,
                "num_key_value_heads": HEADS,
                "head_dim": HEAD_DIM,
                "intermediate_size": WIDTH,
                "rope_theta": 10000.0,
                "rope_scaling": "none",
            },
        },
    }


def pipeline(config: dict, name: str, **env: str) -> Path:
    """Run (or go on with) a run; gives its last checkpoint."""
    path = Path(config["output"]).with_name(f"{name}.yaml")
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "speculators_compat", "pipeline", str(path)]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(config["output"]) / "checkpoints" / str(EPOCHS - 1)


@pytest.fixture(scope="module")
def checkpoint(config) -> Path:
    return pipeline(config, "run")


@pytest.fixture(scope="module")
def facts(config, verifier, checkpoint):
    """Held-out and training sequences as the reference sees them, and a maker of reference drafts."""
    import numpy as np
    import torch
    from datasets import load_from_disk

    from speculators_compat.layers import to_vllm_layer_ids
    from speculators_compat.testing import reference_hidden_states
    from speculators_compat.testing.reference import load_reference_model
    from tests.eagle3_reference import Eagle3, Sequence

    run = Path(config["output"])
    rows = load_from_disk(str(run / "prepared" / "rows")).with_format("torch")
    chosen = torch.from_numpy(np.load(run / "vocab" / "t2d.npy"))
    saved = json.loads((checkpoint / "config.json").read_text())
    served = saved["eagle_aux_hidden_state_layer_ids"]
    assert served == to_vllm_layer_ids(LAYER_IDS[:-1])
    # vLLM's k is the state after k layers: reference_hidden_states counts from 0.
    layers = [*(layer - 1 for layer in served), LAYERS - 1]
    states = reference_hidden_states(verifier, [row["input_ids"].tolist() for row in rows], layers)
    model = load_reference_model(verifier)
    head, embedding = (module.weight.detach() for module in (model.lm_head, model.model.embed_tokens))
    sequences = []
    for row, found in zip(rows, states, strict=True):
        with torch.no_grad():
            logits = model.lm_head(model.model.norm(found[-1]))[:, chosen]
        aux = torch.cat(found[:-1], dim=-1)
        sequences.append(Sequence(row["input_ids"], row["loss_mask"].float(), aux, logits))

    def make() -> Eagle3:
        torch.manual_seed(1)
        return Eagle3(embedding, head[chosen], HEADS, HEAD_DIM, WIDTH, 10000.0, model.config.rms_norm_eps)

    # The pipeline's own split: what it trained on is no test of it.
    training, held_out = split(list(range(len(sequences))), TRAIN_RATIO, 0)
    return [sequences[index] for index in training], [sequences[index] for index in held_out], make


@pytest.fixture(scope="module")
def wanted(config, facts) -> list[float]:
    """Accuracy of the reference, trained by itself on the same data."""
    from tests.eagle3_reference import accuracy, train

    sequences, held_out, make = facts
    draft = make()
    # As many steps as the pipeline took, whose batches are packed by tokens.
    lines = map(json.loads, (Path(config["output"]) / METRICS).read_text().splitlines())
    steps = sum("train" in line for line in lines)
    train(draft, sequences, EPOCHS, RATE, TTT, batch=-(-len(sequences) * EPOCHS // steps))
    return accuracy(draft, held_out, TTT)


def measured(checkpoint: Path, facts) -> list[float]:
    """Accuracy of a trained checkpoint, in the reference's own model."""
    import torch
    from safetensors.torch import load_file

    from tests.eagle3_reference import accuracy

    _, held_out, make = facts
    draft = make()
    saved = {name: tensor.float() for name, tensor in load_file(checkpoint / "model.safetensors").items()}
    own = {name: saved[name] for name in draft.state_dict()}
    left = saved.keys() - own.keys()
    assert left <= {"d2t", "t2d", "embed_tokens.weight"}, left
    draft.load_state_dict(own)
    torch.testing.assert_close(saved["embed_tokens.weight"], draft.embedding, rtol=1e-2, atol=1e-2)
    return accuracy(draft, held_out, TTT)


def test_trained_draft_is_as_accurate_as_the_reference(checkpoint, facts, wanted, record_property):
    assert wanted[0] > 0.8
    found = measured(checkpoint, facts)
    record_property("accuracy_of_the_reference", wanted)
    record_property("accuracy_of_the_pipeline", found)
    assert all(own > reference - POINTS for own, reference in zip(found, wanted, strict=True)), (found, wanted)


def other_run(config: dict, name: str, **changes) -> dict:
    """The same run in another folder, with the prepared rows taken over."""
    output = Path(config["output"]).with_name(name)
    shutil.copytree(Path(config["output"]) / "prepared", output / "prepared")
    return {**config, "output": str(output), **changes}


def test_control_layers_shifted_by_one(config, checkpoint, facts, wanted, record_property):
    shifted = other_run(config, "shifted", layer_ids=[0, 1, 2, 4])
    found = measured(pipeline(shifted, "shifted"), facts)
    record_property("accuracy_with_shifted_layers", found)
    assert found[0] < wanted[0] - POINTS, (found, wanted)


@applies(DRIFT)  # 0.4 applies the norm itself
def test_control_final_norm_left_out(config, checkpoint, facts, wanted, record_property):
    without = other_run(config, "no-norm")
    shutil.copytree(Path(config["output"]) / "data", Path(without["output"]) / "data")
    found = measured(pipeline(without, "no-norm", SPECULATORS_COMPAT_DISABLE=DRIFT.id), facts)
    record_property("accuracy_without_final_norm", found)
    assert found[0] < wanted[0] - POINTS, (found, wanted)
