"""Reading ``.pt`` samples was renamed in speculators 0.5 and removed in 0.8; what it called moved."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..drift import Drift
from ._moved import found_in, gone, old_names
from ._training import DATA

CLASS = "Eagle3SampleFileDataset"
INSTEAD = (
    "From 0.8 on the trainer reads hidden_states/hs_<index>.safetensors beside a prepared dataset "
    "(train.data.ArrowDataset) and no .pt file; speculators 0.7.0 and older read them."
)
UNREAD = ("StandardizeFnSig", "list_files", "slice_and_pad_to_length", "split_files", "standardize_data_v1")


@functools.cache
def _sample_files(base: Any) -> Any:
    """The dataset of 0.4 on top of that of 0.5 to 0.7, which leaves the shift to the collate function."""
    import torch

    class Eagle3SampleFileDataset(base):
        def __init__(
            self,
            max_len: int,
            datapath: Any = None,
            file_list: Any = None,
            transform: Any = None,
            hidden_states_dtype: Any = torch.float,
            standardize_fn: Any = None,
        ) -> None:
            self.standardize_fn = standardize_fn
            super().__init__(max_len, datapath, file_list, transform, hidden_states_dtype)

        def _get_raw_data(self, index: int) -> Any:
            if self.standardize_fn is None:
                return super()._get_raw_data(index)
            return self.standardize_fn(torch.load(self.data[index], mmap=True, weights_only=True, map_location="cpu"))

        def __getitem__(self, index: int) -> Any:
            return found_in("speculators.models.eagle3.data", name="shift_batch")()(super().__getitem__(index))

    # Processes that load data find the class where its user did.
    Eagle3SampleFileDataset.__module__, Eagle3SampleFileDataset.__qualname__ = DATA, CLASS
    return Eagle3SampleFileDataset


def _dataset() -> Any:
    base = getattr(sys.modules[DATA], "SampleFileDataset", None)
    return gone(f"{DATA}.{CLASS}", "0.7.0", INSTEAD)() if base is None else _sample_files(base)


FINDERS = {
    CLASS: _dataset,
    "shift_batch": found_in("speculators.models.eagle3.data", name="shift_batch"),
    "create_collate_fn": gone(
        f"{DATA}.create_collate_fn", "0.6.0", "Use train.data.CollateFn(max_len, hidden_size, ...) of this release."
    ),
    **{name: gone(f"{DATA}.{name}", "0.7.0", INSTEAD) for name in UNREAD},
}


DRIFT = Drift(
    id="training_data_names",
    title="Old names of train.data are found where they are now, or say what replaced them",
    symptom="ImportError: cannot import name 'Eagle3SampleFileDataset' from 'speculators.train.data'",
    call_site="train/data.py",
    speculators=">=0.5",
    # Bound to speculators, not to vLLM; only names that the module lacks are asked for.
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py",
    tripwire=f"{DATA}:BaseDataset.__init__",
    sites=(old_names(DATA, FINDERS),),
)
