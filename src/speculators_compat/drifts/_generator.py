"""Names shared by the drifts of the hidden-states generator."""

from __future__ import annotations

import sys
from typing import Any

GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"


def from_generator(name: str) -> Any:
    """What the generator's module calls ``name``, once that module has been imported."""
    return getattr(sys.modules[GENERATOR], name)
