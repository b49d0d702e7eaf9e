"""A whole run with a tiny Kimi-K2.5 and made-up conversations: no download, no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from .drift import UsageError
from .pipeline.config import load_config
from .pipeline.run import run_pipeline

__all__ = ["prepare_demo", "run_demo"]

CONVERSATIONS = 80
MIN_LAYERS = 7  # upstream's layer rule names a layer twice below

# The CPU engine's settings for a model of this size; what the caller has set wins, and a GPU
# ignores most of them.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # everything is made here
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding fails with more ranks than NUMA nodes
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SLEEP_WHEN_IDLE": "1",  # waiting workers spin otherwise
}


def run_demo(out: Path, tensor_parallel: int, layers: int, kind: str = "kimi_k25") -> dict[str, Any]:
    """Make the model and the data in ``out`` and run the pipeline on them.

    Args:
        out: Folder of the demo; a demo of the same arguments that is there already is completed.
        tensor_parallel: Ranks that share the verifier.
        layers: Decoder layers of the verifier.
        kind: A kind of :data:`speculators_compat.testing.TINY_MODELS`. vLLM has Kimi-K2.5 from 0.15 on.

    Returns:
        The summary of the run.

    Raises:
        UsageError: The arguments do not fit the model, or the folder holds something else.
        StepError: A step failed.
    """
    config_path = prepare_demo(out, tensor_parallel, layers, kind)
    env = {**ENVIRONMENT, **os.environ}
    if not _has_accelerator():
        env.setdefault("VLLM_MLA_DISABLE", "1")  # the CPU backend has no MLA before vLLM 0.28
    return run_pipeline(config_path, env)


def prepare_demo(out: Path, tensor_parallel: int = 1, layers: int = 8, kind: str = "kimi_k25") -> Path:
    """Write model, conversations and configuration.

    Returns:
        The configuration file.

    Raises:
        UsageError: As :func:`run_demo`.
    """
    if layers < MIN_LAYERS:
        raise UsageError(f"The demo needs {MIN_LAYERS} layers or more.", str(layers), "Raise --layers.")
    if tensor_parallel not in (1, 2, 4, 8):
        raise UsageError(
            "The tiny model's 8 heads split over 1, 2, 4 or 8 ranks.",
            str(tensor_parallel),
            "Choose one.",
        )
    config_path = out / "demo.yaml"
    # The comment tells demos of two kinds apart: their configurations are the same.
    text = f"# A tiny {kind}\n{yaml.safe_dump(_configuration(out, tensor_parallel, layers), sort_keys=False)}"
    if config_path.exists() and config_path.read_text(encoding="utf-8") == text:
        load_config(config_path)
        return config_path
    if out.exists() and any(out.iterdir()):
        raise UsageError(
            "The demo's folder must be new, or hold a demo of the same arguments.",
            str(out),
            "Choose another --out.",
        )
    from .testing import make_conversations, make_model

    make_model(kind, out / "model", num_hidden_layers=layers)
    make_conversations(out / "conversations.jsonl", CONVERSATIONS)
    config_path.write_text(text, encoding="utf-8")
    load_config(config_path)
    return config_path


def _configuration(out: Path, tensor_parallel: int, layers: int) -> dict[str, Any]:
    return {
        "model": str(out / "model"),
        "output": str(out / "run"),
        "trust_remote_code": True,  # the tiny model's code is this package's own
        "seq_length": 256,
        "prepare": {"data": str(out / "conversations.jsonl"), "num_proc": 1},
        "extract": {"tensor_parallel_size": tensor_parallel, "prompts_per_call": 40},
        "vocab": {"draft_vocab_size": 256},
        "train": {
            "epochs": 3,
            "lr": 2e-3,
            "total_seq_len": 512,
            "num_workers": 0,
            "draft": {"head_dim": 32, "num_attention_heads": 4, "rope_scaling": "none"},
        },
    }


def _has_accelerator() -> bool:
    import torch

    return bool(torch.accelerator.is_available())
