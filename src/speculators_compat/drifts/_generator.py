"""Names shared by the drifts of the hidden-states generator."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..calls import accepts

#: Called in each worker before anything is captured: the tripwire of drifts that strike there.
WORKER_SETUP = "speculators_compat.capture.extension:HiddenStatesWorkerExtension._setup_hidden_states_capture"
GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"


def from_generator(name: str) -> Any:
    """What the generator's module calls ``name``, once that module has been imported."""
    return getattr(sys.modules[GENERATOR], name)


def takes(name: str, argument: str) -> Callable[[], bool]:
    """A probe: whether what the generator calls ``name`` takes an argument."""
    return lambda: accepts(from_generator(name), argument)


def lacks(name: str, argument: str) -> Callable[[], bool]:
    """A probe: whether what the generator calls ``name`` does not take an argument."""
    return lambda: not accepts(from_generator(name), argument)
