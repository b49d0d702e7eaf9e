"""Real workers on a tiny model: what each says of the shim in its own process.

They run in a process of their own, so that a crash, a hang or an engine's log cannot take doctor with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import activation
from ..processes import stop

__all__ = ["LIMIT_S", "ask"]

LIMIT_S = 900
GRACE_S = 15
LAYERS, LAYER_IDS, PROMPT = 4, [1, 2, 3], [5, 6, 7, 8]
KIND = "llama"
LAST_LINES = 15


def ask(limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Start one engine with one worker on a tiny Llama, extract one prompt's states, and ask the worker.

    Args:
        limit_s: Seconds after which it is ended.

    Returns:
        ``model``; ``seconds``; ``error``, empty if all went well, and ``log``, the last lines of the engine's output if
        not; ``main``, the states of the drifts in the process that started the workers; ``workers``, one dict each:
        ``rank``, ``shim`` (``version``, ``active``, ``pid``), ``decoder``, ``mended``, ``drifts``.
    """
    from ..demo import ENVIRONMENT

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="speculators-compat-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", __name__, str(folder)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env={**ENVIRONMENT, **os.environ}, stdout=log, stderr=log, start_new_session=True
            )
            try:
                error = _ending(process.wait(limit_s))
            except subprocess.TimeoutExpired:
                error = f"not done after {limit_s:.0f} s"
            finally:
                stop(process, GRACE_S)
        return {"model": f"a tiny {KIND}", "seconds": round(time.monotonic() - begun, 1), **_result(folder, error)}


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code else ""


def _result(folder: Path, error: str) -> dict[str, Any]:
    file = folder / "result.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"main": [], "workers": []}
    lines = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
    if not error and not found["workers"]:
        error = "no worker answered"
    return {**found, "error": error, "log": lines[-LAST_LINES:] if error else []}


def main(folder: Path) -> None:
    """The process that starts the engine: writes ``result.json`` into the folder."""
    from speculators.data_generation import VllmHiddenStatesGenerator

    from ..testing import make_model

    model = make_model(KIND, folder / "model", num_hidden_layers=LAYERS)
    # A small share: doctor runs beside what else is on the device.
    generator = VllmHiddenStatesGenerator(
        str(model), LAYER_IDS, max_model_len=64, gpu_memory_utilization=0.2, tensor_parallel_size=1
    )
    try:
        # The constructor has placed the hooks and dropped what the workers said; placing them again is harmless.
        workers = generator.executor.collective_rpc("_setup_hidden_states_capture", args=(LAYER_IDS,))
        (result,) = generator.generate([PROMPT])
        rows = {len(layer) for layer in result["hidden_states"]}
        if rows != {len(PROMPT)}:
            raise RuntimeError(f"{len(PROMPT)} rows of each layer were asked for, {sorted(rows)} came")
    finally:
        generator.close()
    states = [outcome.as_dict() for outcome in activation.outcomes()]
    (folder / "result.json").write_text(json.dumps({"main": states, "workers": workers}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
