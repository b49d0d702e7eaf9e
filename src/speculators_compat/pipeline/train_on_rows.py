"""Training by speculators 0.8 and later: its own command, with its configuration made from the run's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from .train_metrics import listening
from .train_settings import flat_settings, typed_settings
from .training_run import TrainingRun

__all__ = ["train", "trainer_config"]


def train(settings: Any) -> None:
    """Call upstream's training command.

    Args:
        settings: From :func:`trainer_config`.
    """
    from speculators.train.cli import main

    with settings.listening:
        main(settings)


def trainer_config(run: TrainingRun) -> Any:
    """Build upstream's ``TrainConfig``; the decoder layers' config is written to ``<output>/draft``.

    Args:
        run: The checked run.

    Returns:
        The config; training starts to be listened to where upstream saves it, because its own set-up of logging removes
        every handler that is there before.

    Raises:
        UsageError: Upstream refuses the run's options.
    """
    from speculators.train.config import TrainConfig

    listened = ExitStack()

    class ListenedConfig(TrainConfig):
        """The config whose saving is the sign that logging is set up."""

        @property
        def listening(self) -> ExitStack:
            return listened

        def save(self, save_dir: str) -> None:
            super().save(save_dir)
            listened.enter_context(listening(run.config))

    return typed_settings(flat_settings(run), ListenedConfig)
