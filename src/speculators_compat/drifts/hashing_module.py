"""speculators 0.4 imports ``vllm.utils.hashing``; up to vLLM 0.11.0 what it wants from there is in ``vllm.utils``.

The import fails before the generator's module exists, so vLLM's own package is what the fix changes: its search path
gains a folder whose ``hashing.py`` hands the function on. No module of vLLM's is shadowed, because its own folder
comes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..drift import Drift, substitute

MOVED = Path(__file__).with_name("_moved") / "vllm_utils"


def _missing() -> bool:
    import sys

    # The package's own folders are asked, not ours: the answer is the same before and after the fix.
    folders = [Path(folder) for folder in sys.modules["vllm.utils"].__path__ if Path(folder) != MOVED]
    return not any((folder / "hashing.py").is_file() or (folder / "hashing").is_dir() for folder in folders)


def _with_ours(path: Any) -> list[str]:
    return [*path, str(MOVED)]


DRIFT = Drift(
    id="hashing_module",
    title="vllm.utils.hashing can be imported where the function is still in vllm.utils",
    symptom="ModuleNotFoundError: No module named 'vllm.utils.hashing'",
    call_site="data_generation/vllm_hidden_states_generator.py:import",
    speculators=">=0.4.0,<0.5",
    since="0.11.0",
    until="0.11.1",
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/utils/hashing.py",
    probe=_missing,
    sites=(substitute("vllm.utils:__path__", _with_ours),),
)
