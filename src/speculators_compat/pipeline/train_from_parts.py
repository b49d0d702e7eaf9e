"""Training by speculators 0.5 to 0.7, whose training script is not in the package: its parts, put together here."""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import train_from_files
from .checkpoints import epochs
from .draft import decoder_config
from .train_options import EAGLE3, known_options
from .train_settings import flat_settings, hidden_states_dtype, typed_settings
from .trainers import has_schema
from .training_run import TrainingRun, batch_sampler

__all__ = ["process", "train"]


@contextmanager
def process() -> Iterator[tuple[int, int, int]]:
    """This training process among those that torchrun started: local rank, their number, and the rank among all."""
    if not has_schema():
        with train_from_files.process() as ranks:
            yield ranks
        return
    from speculators.train import distributed
    from speculators.train.logger import setup_root_logger

    setup_root_logger()
    distributed.maybe_setup_distributed()
    try:
        yield distributed.get_local_rank(), distributed.get_world_size(), distributed.get_rank()
    finally:
        distributed.maybe_destroy_distributed()


def train(run: TrainingRun, ranks: tuple[int, int, int]) -> None:
    """Train the draft.

    Args:
        run: The checked run.
        ranks: From :func:`process`.

    Raises:
        UsageError: Upstream refuses the run's options, or there are not enough samples to give every process a batch.
    """
    from speculators.train.trainer import Trainer

    settings = in_force(run)
    _seed(run.config.seed)
    model = _model(run, settings)
    loaders = (_newer_loaders if has_schema() else _loaders)(run, settings, model, ranks)
    Trainer(model, _trainer_config(run, settings, type(model), ranks), *loaders).run_training()


def in_force(run: TrainingRun) -> dict[str, Any]:
    """Every setting by upstream's name: the run's, its options, and the release's own defaults.

    Args:
        run: The checked run.

    Raises:
        UsageError: Upstream refuses the run's options.
    """
    if has_schema():
        flat: dict[str, Any] = typed_settings(flat_settings(run)).flatten()
    else:
        flat = {**known_options(run.config.train.algorithm), **flat_settings(run)}
    flat["draft_vocab_size"] = run.config.vocab.draft_vocab_size
    return flat


def _seed(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # upstream draws from the global generator
    torch.manual_seed(seed)


def _model(run: TrainingRun, settings: dict[str, Any]) -> Any:
    import speculators.models  # noqa: F401  (each kind of draft registers itself)
    from speculators.model import SpeculatorModel

    t2d, d2t = run.vocab
    if run.config.vocab.draft_vocab_size == run.verifier.vocab_size:
        t2d = d2t = None  # upstream refuses a mapping that changes nothing
    kind = SpeculatorModel.registry[run.config.train.algorithm]
    return kind.from_training_args(decoder_config(run.config, run.verifier, settings), t2d=t2d, d2t=d2t, **settings)


def _trainer_config(run: TrainingRun, settings: dict[str, Any], kind: Any, ranks: tuple[int, int, int]) -> Any:
    from speculators.train.trainer import TrainerConfig

    train_call, val_call = kind.get_trainer_kwargs(**settings)
    values = {
        **settings,
        "num_epochs": run.config.train.epochs,
        "resume_from_checkpoint": run.config.train.resume and bool(epochs(run.config)),
        "is_distributed": "LOCAL_RANK" in os.environ,
        "local_rank": ranks[0],
        "train_call_kwargs": train_call,
        "val_call_kwargs": val_call,
        "hidden_states_dtype": hidden_states_dtype(settings),
    }
    return TrainerConfig(**{name: values[name] for name in TrainerConfig._fields if name in values})


def _preprocess(algorithm: str) -> Any:
    """What upstream's script does to each sample: EAGLE's kind reads the state one token before the one it predicts."""
    from speculators.models.eagle3.data import shift_batch

    return shift_batch if algorithm in {EAGLE3, "peagle"} else None


def _newer_loaders(run: TrainingRun, settings: dict[str, Any], model: Any, ranks: tuple[int, int, int]) -> Any:
    """Both loaders as 0.7 makes them itself."""
    from speculators._vendor.hs_connectors import FileTransfer
    from speculators.train.dataloader import create_train_val_loaders

    values = {
        **settings,
        "hidden_states_dtype": hidden_states_dtype(settings),
        "transfer": FileTransfer(run.config.data_dir / "hidden_states"),
        "hidden_size": run.verifier.hidden_size,
        "num_target_layers": len(model.target_layer_ids),
        "preprocess": _preprocess(run.config.train.algorithm),
    }
    loaders = create_train_val_loaders(
        **{name: values[name] for name in inspect.signature(create_train_val_loaders).parameters if name in values}
    )
    for loader in loaders:
        loader.batch_sampler.seed = run.config.seed  # 0.7 takes none
    return loaders


def _loaders(run: TrainingRun, settings: dict[str, Any], model: Any, ranks: tuple[int, int, int]) -> list[Any]:
    ratio = run.config.train.train_ratio
    # A negative ratio is the rest of the rows, counted from their end.
    return [_loader(run, settings, ranks, ratio, noisy=True), _loader(run, settings, ranks, ratio - 1.0, noisy=False)]


def _loader(run: TrainingRun, settings: dict[str, Any], ranks: tuple[int, int, int], ratio: float, noisy: bool) -> Any:
    """Packed batches of one split for one rank, on 0.5 and 0.6."""
    import torch
    from speculators.train.data import ArrowDataset
    from speculators.train.noise_transforms import AddUniformNoise
    from torch.utils.data import DataLoader

    config, section = run.config, run.config.train
    noise = AddUniformNoise(std=section.noise_std, tensors=("hidden_states",)) if noisy and section.noise_std else None
    dataset = ArrowDataset(
        max_len=config.total_seq_len,
        datapath=settings["data_path"],
        hidden_states_path=settings["hidden_states_path"],
        on_missing=settings["on_missing"],
        split_ratio=ratio,
        transform=noise,
        hidden_states_dtype=hidden_states_dtype(settings),
    )
    workers = section.num_workers
    return DataLoader(
        dataset,
        batch_sampler=batch_sampler(config, dataset.approx_lengths, ranks[1], ranks[2], seed=config.seed),
        num_workers=workers,
        prefetch_factor=section.prefetch_factor if workers else None,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        collate_fn=_collate(run, settings),
    )


def _collate(run: TrainingRun, settings: dict[str, Any]) -> Any:
    from speculators.train.data import create_collate_fn

    known = inspect.signature(create_collate_fn).parameters
    further = {"num_target_layers": len(run.verifier.layer_ids) - 1, "dtype": hidden_states_dtype(settings)}
    return functools.partial(create_collate_fn, run.config.total_seq_len, run.verifier.hidden_size)(
        preprocess=_preprocess(run.config.train.algorithm),
        **{name: value for name, value in further.items() if name in known},
    )
