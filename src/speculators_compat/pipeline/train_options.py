"""``train.algorithm`` and ``train.options``: what the installed trainer offers, and what the run already says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .. import versions
from ..drift import UsageError
from .config import RunConfig
from .trainers import has_muon, has_noise, has_schema, installed_release, trains_on_rows

__all__ = ["EAGLE3", "FIELD_OF", "HARMLESS", "algorithms", "check_options", "known_options"]

EAGLE3 = "eagle3"

FIELD_OF = {
    "d2t_path": "vocab",
    "data_path": "output",
    "draft_arch": "train.algorithm",
    "draft_config": "train.draft",
    "draft_hidden_act": "train.draft",
    "draft_mrope_full_head_hack": "train.draft.rope_scaling",
    "draft_vocab_size": "vocab.draft_vocab_size",
    "epochs": "train.epochs",
    "hidden_states_path": "output",
    "lr": "train.lr",
    "no_resume_from_checkpoint": "train.resume",
    "noise_std": "train.noise_std",
    "norm_before_residual": "train.draft.norm_before_residual",
    "num_epochs": "train.epochs",
    "num_layers": "train.draft.num_layers",
    "num_workers": "train.num_workers",
    "prefetch_factor": "train.prefetch_factor",
    "resume_from_checkpoint": "train.resume",
    "save_path": "output",
    "scheduler_type": "train.scheduler",
    "scheduler_warmup_steps": "train.warmup_steps",
    "seed": "seed",
    "speculator_type": "train.algorithm",
    "t2d_path": "vocab",
    "target_layer_ids": "layer_ids",
    "token_freq_path": "vocab",
    "total_seq_len": "train.total_seq_len",
    "train_data_ratio": "train.train_ratio",
    "trust_remote_code": "trust_remote_code",
    "ttt_step_loss_decay": "train.ttt_step_loss_decay",
    "ttt_steps": "train.ttt_steps",
    "use_off_policy_tokens": "train.use_off_policy_tokens",
    "verifier_name_or_path": "model",
}
"""Option of an upstream trainer to the configuration's field that says the same."""

DECIDED = frozenset(
    {
        "dry_run",
        "from_pretrained",
        "generation_validation_retries",
        "hidden_states_backend",
        "legacy_data",
        "max_consecutive_generation_failures",
        "max_retries",
        "on_generate",
        "on_missing",
        "request_timeout",
        "save_best",  # deletes the checkpoints that a run goes on from
        "vllm_endpoint",
    }
)
"""Options that would take the run off its own samples and checkpoints; they are not offered."""

HARMLESS = frozenset({"checkpoint_freq", "deterministic_cuda", "log_dir", "log_freq", "logger", "run_name"})
"""Options that may change when a run resumes."""

WHOLE_VOCABULARY = frozenset({"dflash2"})
"""https://github.com/vllm-project/speculators/blob/main/src/speculators/models/dflash2/core.py"""

UNREAD_BUT_BY = {
    "ttt_steps": {EAGLE3},
    "ttt_step_loss_decay": {EAGLE3},
    "use_off_policy_tokens": {EAGLE3},
    "draft.norm_before_residual": {EAGLE3, "peagle"},
}
"""Fields of ``train`` to the kinds of drafts that read them; every other field means something to all."""

FOREIGN = {"fc_norm", "norm_before_fc", "norm_output"}
"""Options that stand in a group for all drafts and are read by EAGLE's kind alone."""

FROM_PARTS: dict[str, dict[str, dict[str, Any]]] = {
    "0.5": {
        "": {
            "checkpoint_freq": 1,
            "hidden_states_dtype": "bfloat16",
            "log_freq": 1,
            "scheduler_num_cosine_cycles": 0.5,
            "scheduler_total_steps": None,
        },
        "eagle3": {"embed_requires_grad": False, "norm_before_fc": False},
        "dflash": {"block_size": 8, "mask_token_id": None, "max_anchors": 3072},
    },
    "0.6": {
        "": {
            "checkpoint_freq": 1,
            "hidden_states_dtype": "bfloat16",
            "log_freq": 1,
            "loss_fn": "kl_div",
            "scheduler_num_cosine_cycles": 0.5,
            "scheduler_total_steps": None,
        },
        "eagle3": {"embed_requires_grad": False, "norm_before_fc": False},
        "dflash": {"block_size": 8, "mask_token_id": None, "max_anchors": 3072, "sliding_window_non_causal": False},
        "peagle": {
            "down_sample_ratio": 0.7,
            "down_sample_ratio_min": 0.2,
            "mask_token_id": None,
            "num_depths": 8,
        },
    },
}
"""Options of the releases that have no schema of their own, with the defaults that ``from_training_args``,
``get_trainer_kwargs`` and ``TrainerConfig`` have there; the empty name stands for every algorithm."""

EXAMPLE = "docs/pipeline.md lists the algorithms and says which options come from where."


def check_options(config: RunConfig, target_vocab_size: int) -> None:
    """Refuse an algorithm or an option that the installed trainer does not have. Nothing is imported for the defaults.

    Args:
        config: The run.
        target_vocab_size: Of its verifier.

    Raises:
        UsageError: Algorithm or option is unknown, does not go with the draft's vocabulary, is said by a field already,
            or a field asks for what the release cannot do.
    """
    section = config.train
    if section.algorithm != EAGLE3:
        _check_algorithm(section.algorithm)
        _check_vocabulary(config, target_vocab_size)
    if section.options:
        _check_names(section.options, known_options(section.algorithm))
    _check_saved_epochs(config)
    _check_unread_fields(config)
    if has_schema():
        _check_lost_fields(config)


def algorithms() -> list[str]:
    """Algorithms of the installed trainer that train on this run's samples, sorted."""
    if not trains_on_rows():
        return [EAGLE3]
    if not has_schema():
        return sorted(name for name in _table() if name)
    import speculators.models  # noqa: F401  (each registers itself)
    from speculators.model import SpeculatorModel

    registered = set(SpeculatorModel.registry or {})
    # mtp goes on training heads that the verifier brings itself (tensors "mtp.*"), with the verifier's own decoder
    # layer and whole vocabulary: none of vocab, draft and layer_ids means anything to it.
    return sorted(registered - {"mtp"})


def known_options(algorithm: str) -> dict[str, Any]:
    """Options that ``train.options`` may hold, with the release's defaults (None: derived by the trainer).

    Args:
        algorithm: For which draft.
    """
    if not trains_on_rows():
        return {}
    if not has_schema():
        table = _table()
        return {**table[""], **table.get(algorithm, {})}
    from speculators.train.config import TrainConfig, resolution

    users: Mapping[str, Iterable[str]] = getattr(resolution, "_ALGORITHM_GROUP_USERS", {})
    config = TrainConfig(speculator_type=algorithm)
    foreign = {
        name
        for group, who in users.items()
        if algorithm not in who
        for name in type(getattr(config, group)).model_fields
    }
    foreign |= {"max_anchors"} if algorithm == EAGLE3 else set() if algorithm == "peagle" else FOREIGN
    hidden = FIELD_OF.keys() | DECIDED | foreign
    return {name: value for name, value in config.flatten().items() if name not in hidden}


def _table() -> dict[str, dict[str, Any]]:
    release = installed_release()
    return FROM_PARTS[".".join(release.split(".")[:2])]


def _check_algorithm(algorithm: str) -> None:
    offered = algorithms()
    if algorithm not in offered:
        raise UsageError(
            f"train.algorithm must be one that speculators {installed_release()} can train on these samples: "
            f"{', '.join(offered)}.",
            f"{algorithm!r}",
            EXAMPLE,
        )


def _check_vocabulary(config: RunConfig, target_vocab_size: int) -> None:
    algorithm, size = config.train.algorithm, config.vocab.draft_vocab_size
    if algorithm in WHOLE_VOCABULARY and size != target_vocab_size:
        raise UsageError(
            f"A draft of the kind {algorithm} has the verifier's whole vocabulary.",
            f"vocab.draft_vocab_size {size} of {target_vocab_size} tokens",
            f"Set vocab.draft_vocab_size: {target_vocab_size}.",
        )


def _check_names(options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    said = {name: FIELD_OF[name] for name in options if name in FIELD_OF}
    if said:
        raise UsageError(
            "train.options must not repeat what a field of the configuration says.",
            ", ".join(f"{name} (the field {field})" for name, field in sorted(said.items())),
            "Set the field.",
        )
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise UsageError(
            f"train.options must be options of speculators {installed_release()}'s trainer.",
            ", ".join(unknown),
            f"Known: {', '.join(sorted(known)) or 'none'}.",
        )


def _check_saved_epochs(config: RunConfig) -> None:
    """A checkpoint must be an epoch's end, and the last epoch's among them, or a run is not what its folder says.

    Upstream saves inside an epoch into that epoch's folder, and the last epoch only where the frequency divides them:
    https://github.com/vllm-project/speculators/blob/v0.9.0/src/speculators/train/trainer.py
    """
    often, epochs = config.train.options.get("checkpoint_freq", 1), config.train.epochs
    if not isinstance(often, int | float) or often < 1 or epochs % often:
        raise UsageError(
            "checkpoint_freq must be whole epochs, and divide train.epochs: the last one is saved only then.",
            f"checkpoint_freq {often!r}, {epochs} epochs",
            "Leave it out, or correct one of them.",
        )


def _check_unread_fields(config: RunConfig) -> None:
    """Refuse fields that were written down and that the draft's kind does not read; defaults pass."""
    section = config.train
    readers = UNREAD_BUT_BY.items() if trains_on_rows() else ()
    unread = [f"train.{name}" for name, who in readers if section.algorithm not in who and _is_written(config, name)]
    if unread:
        raise UsageError(
            f"Every field must mean something to a {section.algorithm} draft.",
            f"{', '.join(unread)}, which its training does not read",
            "Leave them out.",
        )


def _is_written(config: RunConfig, name: str) -> bool:
    section, _, field = name.rpartition(".")
    return field in (getattr(config.train, section) if section else config.train).model_fields_set


def _check_lost_fields(config: RunConfig) -> None:
    """Refuse what is asked for in so many words and the release does not do, or no longer; defaults pass."""
    section, release = config.train, installed_release()
    if section.options.get("optimizer") == "muon" and not has_muon():
        torch = versions.installed("torch")
        raise UsageError(
            "The optimizer muon is torch's own, from 2.9 on.",
            f"train.options.optimizer: muon beside torch {torch.release if torch else 'unknown'}",
            "Leave the option out: adamw is taken.",
        )
    if "use_off_policy_tokens" in section.model_fields_set and not section.use_off_policy_tokens:
        raise UsageError(
            f"speculators {release} always feeds ground-truth tokens between the draft's steps.",
            "train.use_off_policy_tokens: false",
            "Leave the field out, or set it to true.",
        )
    if "noise_std" in section.model_fields_set and section.noise_std and not has_noise():
        raise UsageError(
            f"speculators {release} adds no noise to the states.",
            f"train.noise_std: {json.dumps(section.noise_std)}",
            "Leave the field out, or set it to 0.",
        )
