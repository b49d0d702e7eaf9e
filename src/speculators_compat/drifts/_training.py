"""Names and questions shared by the drifts of preparation and training."""

from __future__ import annotations

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
