"""speculators 0.9 removed the noise that a trainer could add to hidden states, and the module that held it."""

from __future__ import annotations

from ..drift import Drift
from ._absent import is_absent, searched_too

DRIFT = Drift(
    id="noise_transforms_module",
    title="train.noise_transforms says that this trainer adds no noise",
    symptom="ModuleNotFoundError: No module named 'speculators.train.noise_transforms'",
    call_site="train/noise_transforms.py",
    speculators=">=0.9",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/noise_transforms.py",
    probe=is_absent("speculators.train", "noise_transforms"),
    sites=(searched_too("speculators.train"),),
)
