"""Names and questions shared by the drifts of preparation and training."""

from __future__ import annotations

from typing import Any

from ..verifier import offsets_norm

PREPROCESSING = "speculators.data_generation.preprocessing"
CORE = "speculators.models.eagle3.core"
BLOCK_CORE = "speculators.models.dflash.core"
TRAINER = "speculators.train.trainer"
CHECKPOINTER = "speculators.train.checkpointer"
UTILS = "speculators.train.utils"
DATA = "speculators.train.data"

DRAFT_MODEL = f"{CORE}:Eagle3DraftModel"
DRAFT_INIT = f"{DRAFT_MODEL}.__init__"
TRAINER_INIT = f"{TRAINER}:Trainer.__init__"
CHECKPOINTER_INIT = f"{CHECKPOINTER}:BaseCheckpointer.__init__"
DATASET_INIT = f"{DATA}:Eagle3SampleFileDataset.__init__"
BUILD_DATASET = f"{PREPROCESSING}:build_eagle3_dataset"  # up to 0.7
PREPARE = f"{PREPROCESSING}:load_and_preprocess_dataset"


def has_accelerator() -> bool:
    """Whether torch has a device other than the CPU. Asked at the call, never at import."""
    import torch

    return bool(torch.accelerator.is_available())


def final_norm_of_its_kind(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Around the loading of a verifier's weights: a final norm that multiplies by 1 + weight comes first.

    The weight is loaded as the verifier stores it; adding the one to it would round it in the draft's dtype.
    """
    described = getattr(getattr(instance, "config", None), "speculators_config", None)
    name_or_path = getattr(getattr(described, "verifier", None), "name_or_path", None)
    norm = getattr(instance, "verifier_norm", None)
    if norm is not None and name_or_path and offsets_norm(name_or_path):
        instance.verifier_norm = _with_offset(norm)
    wrapped(*args, **kwargs)


def _with_offset(norm: Any) -> Any:
    """Gemma's norm for ``[..., hidden]`` states in place of a plain one, as frozen, or what is given if it is one."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

    if isinstance(norm, Gemma3RMSNorm):
        return norm
    weight = norm.weight
    ours = Gemma3RMSNorm(weight.numel(), eps=norm.variance_epsilon).to(device=weight.device, dtype=weight.dtype)
    ours.weight.requires_grad_(weight.requires_grad)
    return ours
