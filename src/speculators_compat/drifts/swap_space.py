"""vLLM reserves 4 GiB of swap space a rank by default and refuses to start where the host has less."""

from __future__ import annotations

from ..calls import add_default
from ..drift import Drift, wrap
from ._generator import GENERATOR, takes

DRIFT = Drift(
    id="swap_space",
    title="No swap space is reserved",
    symptom="ValueError: Too large swap space.",
    call_site="data_generation/vllm_hidden_states_generator.py:_create_vllm_config",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until="0.18.0",  # the field is gone
    upstream="https://github.com/vllm-project/vllm/blob/v0.16.0/vllm/config/cache.py",
    probe=takes("CacheConfig", "swap_space"),
    # A prefill that is preempted is recomputed; nothing is ever swapped out.
    sites=(wrap(f"{GENERATOR}:CacheConfig", add_default("swap_space", 0)),),
)
