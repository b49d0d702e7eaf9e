"""vLLM 0.11.0's Scheduler takes no ``block_size`` (it reads the cache config); speculators 0.4 passes it."""

from __future__ import annotations

from ..calls import drop_unknown
from ..drift import Drift, wrap
from ._generator import GENERATOR, lacks

DRIFT = Drift(
    id="scheduler_without_block_size",
    title="block_size is not passed to a Scheduler that does not take it",
    symptom="TypeError: Scheduler.__init__() got an unexpected keyword argument 'block_size'",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.4.0,<0.5",
    since="0.11.0",
    until="0.11.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/v1/core/sched/scheduler.py#L43",
    probe=lacks("Scheduler", "block_size"),
    sites=(wrap(f"{GENERATOR}:Scheduler", drop_unknown("block_size")),),
)
