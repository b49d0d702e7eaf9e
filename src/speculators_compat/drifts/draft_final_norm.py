"""speculators 0.3.0 computes targets without the verifier's final norm."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ..verifier import NORM, load_tensors, norm_offset, text_config
from ._training import DRAFT_INIT, DRAFT_MODEL


def _add_norm(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    def setup(config: Any, t2d: Any) -> None:
        wrapped(config, t2d)
        _norm_input(instance.verifier_lm_head, config.name_or_path)

    setup(*args, **kwargs)


def _norm_input(head: Any, name_or_path: str) -> None:
    """Make a head take pre-norm states.

    The weight is a buffer that is not saved: it follows the head from device to device, and
    checkpoints keep the format that vLLM reads.
    """
    import torch
    from speculators.utils.loading import load_model_layers

    config = text_config(name_or_path)
    weight = load_tensors([NORM], name_or_path, load_model_layers)[NORM]
    weight = weight.to(torch.float32) + norm_offset(config)
    head.register_buffer("final_norm_weight", weight, persistent=False)
    head.final_norm_eps = float(config.rms_norm_eps)
    head.register_forward_pre_hook(_rms_norm)


def _rms_norm(head: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """RMSNorm in float32 of ``[..., hidden]`` states, given back in their own dtype."""
    import torch

    (states,) = inputs
    normed = torch.nn.functional.rms_norm(
        states.float(), states.shape[-1:], head.final_norm_weight.float(), head.final_norm_eps
    )
    return (normed.to(states.dtype),)


DRIFT = Drift(
    id="draft_final_norm",
    title="Training targets pass through the verifier's final norm",
    symptom="no error: targets are computed from states that lack the final norm",
    silent=True,
    call_site="models/eagle3/core.py:Eagle3DraftModel.forward",
    speculators=">=0.3.0,<0.4",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/pull/313",
    tripwire=DRAFT_INIT,
    sites=(wrap(f"{DRAFT_MODEL}._setup_embeddings_and_lm_heads", _add_norm),),
)
