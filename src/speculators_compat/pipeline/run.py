"""The whole run: every step as a process of its own, stopped at the first that fails.

A step in its own process gives its memory and its GPUs back when it ends, and is the same command
that a user can repeat alone.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..processes import stop
from .config import load_config
from .page import try_report
from .summary import STEPS, gather
from .verifier import check_inputs

__all__ = ["StepError", "run_pipeline", "run_step", "step_command"]

PACKAGE = __package__.partition(".")[0]
GRACE_S = 60.0  # for a step to stop its engine


class StepError(RuntimeError):
    """A step failed.

    Args:
        step: Its name.
        code: Exit code of its process.
    """

    def __init__(self, step: str, code: int) -> None:
        self.step, self.code = step, code
        super().__init__(f"The step {step} failed with exit code {code}; its messages are above.")


def step_command(step: str, config_path: Path) -> list[str]:
    """Command line of one step.

    Args:
        step: ``prepare``, ``extract``, ``vocab`` or ``train``.
        config_path: The configuration file.
    """
    return [sys.executable, "-m", PACKAGE, step, str(config_path)]


def run_step(step: str, config_path: Path, **options: Any) -> None:
    """Run one step in this process; training with several processes is handed to torchrun.

    Args:
        step: Its name.
        config_path: The configuration file.
        options: What the step's ``run`` takes beside the configuration.

    Raises:
        UsageError: The configuration, or what the step needs, is wrong.
    """
    config = load_config(config_path)
    module = importlib.import_module(f"{__package__}.{step}")
    if step == "train" and config.train.num_processes > 1 and "LOCAL_RANK" not in os.environ:
        # Here bad input is one message and exit code 2; torchrun would print one for each process and exit with 1.
        module.check(config)
        launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={config.train.num_processes}", "-m"]
        command = step_command(step, config_path)
        os.execv(command[0], [*command[:2], *launch, *command[2:]])  # noqa: S606 (replaces this process on purpose)
    module.run(config, **options)


def run_pipeline(config_path: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run all steps.

    Args:
        config_path: The configuration file.
        env: Environment of the steps; None: this process's.

    Returns:
        The summary, which is also in ``<output>/summary.json``.

    Raises:
        UsageError: The configuration is wrong; no step was started.
        StepError: A step failed; the later ones were not started.
        KeyboardInterrupt: Interrupted; the step was stopped.
    """
    config = load_config(config_path)
    check_inputs(config)  # the first step checks the rest before it writes anything
    for step in STEPS:
        code = _run_process(step_command(step, config_path), env)
        if code:
            raise StepError(step, code)
    summary = gather(config)
    try_report(config)
    return summary


def _run_process(command: list[str], env: dict[str, str] | None) -> int:
    # In a session of its own, so that Ctrl-C reaches the step once, from here, and its whole group
    # can be ended.
    process = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        with _termination_raises():
            return process.wait()
    except BaseException:
        stop(process, GRACE_S)
        raise


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that no step outlives this process."""

    def stop(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
