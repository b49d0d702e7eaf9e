"""Several engines on one data set under Ray, which chooses their machines and GPUs.

A task for each part, not an actor: where the cluster has fewer GPUs than the parts need, tasks wait for each other's.
Each runs the same command that torchrun and Slurm launch, in a process of its own: vLLM changes its mind about its own
executor inside a Ray worker.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..drift import UsageError
from .config import load_config
from .run import StepError, run_step, step_command

__all__ = ["extract"]


def extract(config_path: Path, engines: int) -> None:
    """Extract with several engines, then complete the folder.

    Args:
        config_path: The configuration file; it and the run folder are on a disk that all machines share.
        engines: Parts of the data set; each gets ``tensor_parallel_size`` GPUs, or as many CPUs in a cluster without
            GPUs.

    Raises:
        UsageError: Ray is missing, the configuration is wrong, or the cluster cannot hold one engine.
        StepError: A part failed; the others went on to their end.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise UsageError(
            "--ray needs Ray.", "no ray in this environment", "pip install 'speculators-compat[ray]'"
        ) from None
    ranks = load_config(config_path).extract.tensor_parallel_size
    ours = not ray.is_initialized()
    if ours:
        ray.init()
    try:
        there = ray.cluster_resources()
        kind = "GPU" if there.get("GPU") else "CPU"
        _check_room(there.get(kind, 0), kind, ranks)
        task = ray.remote(max_retries=0, **{f"num_{kind.lower()}s": ranks})(_run)
        command = step_command("extract", config_path.absolute())
        parts = [[*command, "--shard", f"{index}/{engines}"] for index in range(engines)]
        codes = ray.get([task.remote(part, str(Path.cwd())) for part in parts])
    finally:
        if ours:
            ray.shutdown()
    failed = [code for code in codes if code]
    if failed:
        raise StepError("extract", failed[0])
    run_step("extract", config_path)


def _check_room(there: float, kind: str, ranks: int) -> None:
    if there < ranks:
        raise UsageError(
            f"One engine takes a {kind} for each rank: {ranks} (extract.tensor_parallel_size).",
            f"{there:.0f} in the whole Ray cluster",
            "Join a larger cluster (RAY_ADDRESS).",
        )


def _run(command: list[str], folder: str) -> int:
    return subprocess.run(command, cwd=folder, check=False).returncode
