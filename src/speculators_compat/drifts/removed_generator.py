"""speculators 0.5 removed the in-process generator, which scripts still name, for a server with a connector."""

from __future__ import annotations

from ..drift import Drift
from ._absent import is_absent, searched_too
from ._generator import GENERATOR
from ._moved import found_in, old_names

PACKAGE = "speculators.data_generation"
CLASS = "VllmHiddenStatesGenerator"

DRIFT = Drift(
    id="removed_generator",
    title="The in-process generator, its worker extension and its data_config.json are there on 0.5 and later",
    symptom="ImportError: cannot import name 'VllmHiddenStatesGenerator' from 'speculators.data_generation'",
    call_site="data_generation/__init__.py",
    speculators=">=0.5",
    # Bound to speculators, not to vLLM.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/tree/v0.5.0/src/speculators/data_generation",
    process="both",
    probe=is_absent(PACKAGE, "vllm_hidden_states_generator"),
    # The class is looked up at its first use: a script that only prepares data must not import vLLM.
    sites=(searched_too(PACKAGE), old_names(PACKAGE, {CLASS: found_in(GENERATOR, name=CLASS)})),
)
