"""FlexAttention's missing backward pass on a CPU, where speculators 0.5 and later call it for every kind of draft."""

from __future__ import annotations

from ..drift import Drift, wrap
from ._training import TRAINER_INIT
from .flex_attention_backward import dense_on_cpu, is_refused

DRIFT = Drift(
    id="shared_attention_backward",
    title="Every draft's attention has a backward pass on a CPU",
    symptom="NotImplementedError: FlexAttention does not support backward on CPU.",
    call_site="models/attention.py:flex_attention_forward",
    speculators=">=0.5",
    # Bound to torch, whose releases vLLM's follow: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/pytorch/pytorch/blob/v2.11.0/torch/nn/attention/flex_attention.py",
    tripwire=TRAINER_INIT,
    probe=is_refused,
    sites=(wrap("speculators.models.attention:flex_attention", dense_on_cpu),),
)
