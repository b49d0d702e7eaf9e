"""The run's settings by the names that speculators' trainers of 0.5 and later have for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..drift import UsageError
from ..layers import to_vllm_layer_ids
from ..store import write_json
from .config import RunConfig
from .draft import decoder_config, mask_token
from .train_options import EAGLE3, known_options
from .trainers import has_command, has_muon, has_noise, has_schema, installed_release
from .training_run import TrainingRun

__all__ = ["flat_settings", "hidden_states_dtype", "typed_settings"]

DECODER = "draft"  # folder of the decoder layers' config.json, for ``draft_config``


def typed_settings(flat: dict[str, Any], kind: Any = None) -> Any:
    """Upstream's ``TrainConfig`` (0.7 and later), which fills in what is left to it.

    Args:
        flat: From :func:`flat_settings`.
        kind: A subclass to make.

    Raises:
        UsageError: Upstream refuses the settings.
    """
    from pydantic import ValidationError
    from speculators.train.config import TrainConfig

    try:
        return (kind or TrainConfig).from_flat(flat)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise UsageError(
            f"speculators {installed_release()} must accept the run's settings.", problems, "Correct train.options."
        ) from error


def hidden_states_dtype(settings: dict[str, Any]) -> Any:
    """The dtype in which states are loaded.

    Args:
        settings: With upstream's option ``hidden_states_dtype``.

    Raises:
        UsageError: It is none that a draft trains in.
    """
    import torch

    name = settings["hidden_states_dtype"]
    if name not in {"bfloat16", "float32"}:
        raise UsageError("hidden_states_dtype must be bfloat16 or float32.", f"{name!r}", "Correct train.options.")
    return getattr(torch, name)


def flat_settings(run: TrainingRun) -> dict[str, Any]:
    """Upstream's options by name: the run's fields, then ``train.options``.

    Args:
        run: The checked run.

    Raises:
        UsageError: There is no mask token, or an option does not fit the draft.
    """
    config, section = run.config, run.config.train
    settings: dict[str, Any] = {
        "speculator_type": section.algorithm,
        "seed": config.seed,
        "verifier_name_or_path": config.verifier,
        "trust_remote_code": config.trust_remote_code,
        "num_layers": section.draft.num_layers,
        "target_layer_ids": to_vllm_layer_ids(run.verifier.layer_ids[:-1]),
        "norm_before_residual": section.draft.norm_before_residual,
        "data_path": str(config.prepared_dir / "rows"),
        "hidden_states_path": str(config.data_dir / "hidden_states"),
        "on_missing": "raise",
        "total_seq_len": config.total_seq_len,
        "train_data_ratio": section.train_ratio,
        "num_workers": section.num_workers,
        "prefetch_factor": section.prefetch_factor,
        "lr": section.lr,
        "epochs": section.epochs,
        "scheduler_type": section.scheduler,
        "scheduler_warmup_steps": section.warmup_steps,
        "ttt_steps": section.ttt_steps,
        "ttt_step_loss_decay": section.ttt_step_loss_decay,
        "save_path": str(config.checkpoint_dir),
        "no_resume_from_checkpoint": not section.resume,
        # EAGLE-3 masks nothing; upstream would load the verifier's processor to find a token all the same.
        "mask_token_id": 0 if section.algorithm == EAGLE3 else mask_token(config, run.verifier),
        **_vocabulary(run),
    }
    if has_command():
        settings["draft_config"] = str(_write_decoder(run))
    else:
        settings["use_off_policy_tokens"] = section.use_off_policy_tokens
    if has_noise():
        settings["noise_std"] = section.noise_std
    if has_schema() and not has_muon():
        settings["optimizer"] = "adamw"
    return {**settings, **{name: value for name, value in section.options.items() if name != "mask_token_id"}}


def _vocabulary(run: TrainingRun) -> dict[str, Any]:
    """Where the vocabulary lies; a draft that has all of the verifier's takes no mapping."""
    folder: Path = run.config.vocab_dir
    if run.config.vocab.draft_vocab_size == run.verifier.vocab_size:
        return {"draft_vocab_size": None, "d2t_path": None, "t2d_path": None}
    paths = {f"{name}_path": str(folder / f"{name}.npy") for name in ("d2t", "t2d")}
    return {"draft_vocab_size": run.config.vocab.draft_vocab_size, **paths}


def _write_decoder(run: TrainingRun) -> Path:
    """Every process writes the same file: none has to wait for another."""
    config: RunConfig = run.config
    defaults = known_options(config.train.algorithm)
    decoder = decoder_config(config, run.verifier, {**defaults, **config.train.options})
    folder = config.output / DECODER
    write_json(folder / "config.json", decoder.to_dict())
    return folder
