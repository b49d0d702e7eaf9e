"""torchvision 0.26 dropped its video reader; the ``datasets`` that speculators pins imports it to format any column.

It does so once torchvision is imported, which vLLM and transformers do.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from ..drift import Drift, substitute
from ._training import PREPROCESSING

MODULE = "datasets.config"


def _reader_is_missed() -> bool:
    formatter = Path(str(sys.modules[MODULE].__file__)).parent / "formatting" / "np_formatter.py"
    if "from torchvision.io import VideoReader" not in formatter.read_text(encoding="utf-8"):
        return False
    # Not imported to be asked: that takes a second, and a process that only formats text has no use for it.
    torchvision = importlib.util.find_spec("torchvision")
    folders = torchvision.submodule_search_locations if torchvision else None
    return bool(folders) and not any(Path(folder, "io", "video_reader.py").is_file() for folder in folders or ())


DRIFT = Drift(
    id="datasets_video_reader",
    title="datasets formats columns without torchvision's former video reader",
    symptom="ImportError: cannot import name 'VideoReader' from 'torchvision.io'",
    call_site="data_generation/preprocessing.py:load_and_preprocess_dataset, train/data.py:ArrowDataset",
    speculators=">=0.3.0",
    # Bound to torchvision, whose releases vLLM's follow: the probe decides.
    since=None,
    until=None,
    upstream="https://github.com/huggingface/datasets/blob/4.6.0/src/datasets/formatting/np_formatter.py#L67",
    process="main",
    tripwire=f"{PREPROCESSING}:load_and_preprocess_dataset",
    probe=_reader_is_missed,
    # Asked by the formatters alone, which look for videos as torchvision used to give them.
    sites=(substitute(f"{MODULE}:TORCHVISION_AVAILABLE", lambda _: False),),
)
