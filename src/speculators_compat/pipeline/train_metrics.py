"""What a trainer logs, kept as JSON lines; and what a run's report says of it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .checkpoints import epochs
from .config import RunConfig

__all__ = ["METRICS", "listening", "result", "validations"]

METRICS = "train_metrics.jsonl"
LOGGER = "speculators.metrics"
log = logging.getLogger(__name__)


class _MetricsFile(logging.Handler):
    """Appends every metrics record of speculators' trainer to a JSON-lines file."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self.file = path.open("a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        # The newer trainers log their configuration too, which is no metric.
        if isinstance(record.msg, Mapping) and ("train" in record.msg or "val" in record.msg):
            line = {"step": getattr(record, "step", None), **record.msg}
            self.file.write(json.dumps(line, default=float) + "\n")
            self.file.flush()
            if "val" in line:
                log.info("epoch %s: validation loss %.3f", line.get("epoch"), line["val"]["loss_epoch"])

    def close(self) -> None:
        self.file.close()
        super().close()


@contextmanager
def listening(config: RunConfig) -> Iterator[None]:
    """Keep what the trainer logs to "speculators.metrics".

    Args:
        config: The run; without a checkpoint its earlier metrics are forgotten.
    """
    path = config.output / METRICS
    if not epochs(config):
        path.unlink(missing_ok=True)
    logger = logging.getLogger(LOGGER)
    handler = _MetricsFile(path)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # a record of a dozen figures for each step
    logger.propagate, propagated = False, logger.propagate
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
        handler.close()


def _lines(config: RunConfig) -> list[dict[str, Any]]:
    path = config.output / METRICS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def validations(config: RunConfig) -> Counter[int]:
    """How often each epoch was validated, which is the last thing that a trainer does in one.

    Args:
        config: The run.
    """
    return Counter(line["epoch"] for line in _lines(config) if "val" in line)


def result(config: RunConfig) -> dict[str, Any]:
    """First and last loss, from the metrics file, and the newest checkpoint.

    Args:
        config: The run.
    """
    lines = _lines(config)
    losses = [line["train"]["loss"] for line in lines if "train" in line]
    validation = [line["val"]["loss_epoch"] for line in lines if "val" in line]
    saved = epochs(config)
    return {
        "steps": len(losses),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "first_validation_loss": validation[0] if validation else None,
        "last_validation_loss": validation[-1] if validation else None,
        "checkpoint": str(config.checkpoint_dir / str(saved[-1])) if saved else None,
    }
