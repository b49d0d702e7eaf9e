"""A verifier whose type transformers does not know, and whose remote code cannot run without being noticed."""

from __future__ import annotations

import json
from pathlib import Path

from speculators_compat.testing import make_kimi_k25


def unknown_wrapper(folder: Path) -> Path:
    """A tiny Kimi-K2.5 under another model type."""
    path = make_kimi_k25(folder, num_hidden_layers=5)
    (path / "configuration_kimi_k25.py").write_text("raise SystemExit('remote code was executed')\n")
    # transformers 5 has a class for Kimi-K2.5: another name stands for the next model that it does not know.
    described = json.loads((path / "config.json").read_text())
    text = {"initializer_range": 0.02, **described["text_config"]}
    (path / "config.json").write_text(json.dumps({**described, "model_type": "kimi_unknown", "text_config": text}))
    return path
