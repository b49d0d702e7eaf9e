"""speculators 0.4 imports ``vllm.utils.hashing``; up to vLLM 0.11.0 what it wants from there is in ``vllm.utils``."""

from __future__ import annotations

from ..drift import Drift
from ._absent import is_absent, searched_too

DRIFT = Drift(
    id="hashing_module",
    title="vllm.utils.hashing can be imported where the function is still in vllm.utils",
    symptom="ModuleNotFoundError: No module named 'vllm.utils.hashing'",
    call_site="data_generation/vllm_hidden_states_generator.py:import",
    speculators=">=0.4.0,<0.5",
    since="0.11.0",
    until="0.11.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/utils/hashing.py",
    probe=is_absent("vllm.utils", "hashing"),
    sites=(searched_too("vllm.utils"),),
)
