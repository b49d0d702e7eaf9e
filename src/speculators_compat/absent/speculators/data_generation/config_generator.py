"""The record of an extraction (``data_config.json``) that speculators 0.5 removed, with the fields of 0.4.

The drift ``removed_generator`` puts this folder on the package's search path; the file is imported as speculators' own.
The fields, their order and the version "2.0" are the file's format: what 0.4 wrote and this writes reads alike.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import torch
from speculators.data_generation.logging_utils import PipelineLogger
from speculators.utils.util import get_device_name
from transformers import AutoConfig

__all__ = ["DataGenerationConfig", "PackageVersions"]

log = PipelineLogger(__name__)


def _get_gpu_info() -> str:
    """Name of the accelerator, with their number where there are several; "CPU ONLY" where there is none."""
    name = get_device_name(0)
    if name == "NO ACCELERATOR":
        return "CPU ONLY"
    count = torch.accelerator.device_count()
    return name if count == 1 else f"{count}x {name}"


@dataclass
class PackageVersions:
    """Versions of what made the data."""

    torch: str
    vllm: str
    transformers: str
    speculators: str

    @classmethod
    def from_environment(cls) -> PackageVersions:
        """The versions as the imported modules state them."""
        import transformers
        import vllm

        modules = {module.__name__: str(module.__version__) for module in (torch, vllm, transformers)}
        return cls(**modules, speculators=metadata.version("speculators"))


@dataclass
class ReproducibilityInfo:
    """The command line, and what it ran on."""

    command: str
    package_versions: PackageVersions
    gpu: str = field(default_factory=_get_gpu_info)


@dataclass
class ModelConfig:
    """The verifier and how it was loaded."""

    target_model_path: str
    tensor_parallel_size: int
    gpu_memory_utilization: float
    hidden_size: int


@dataclass
class DataConfig:
    """The conversations."""

    train_data_path: str
    seq_length: int
    max_samples: int | None
    num_samples: int
    seed: int
    chat_template_note: str = "Uses tokenizer's built-in chat template"


@dataclass
class HiddenStatesConfig:
    """The layers; id k is the state after decoder layer k."""

    layer_ids: list[int]
    description: str = "Layers selected for EAGLE3 fusion and target logits"


@dataclass
class GenerationConfig:
    """Where the preprocessed data was kept."""

    cache_dir: str


@dataclass
class FormatConfig:
    """What a sample file holds."""

    file_pattern: str
    schema: dict[str, dict[str, Any]]

    @classmethod
    def create_default(cls, num_layers: int, hidden_size: int) -> FormatConfig:
        """The format of ``data_<index>.pt``."""
        rows = "[seq_len]"
        states: dict[str, Any] = _entry(
            "list[torch.bfloat16]", f"list of [seq_len, {hidden_size}]", f"Hidden states from {num_layers} layers"
        )
        return cls(
            file_pattern="data_{idx}.pt",
            schema={
                "input_ids": _entry("torch.long", rows, "Tokenized input sequence"),
                "hidden_states": {**states, "num_tensors": num_layers},
                "loss_mask": _entry("torch.long", rows, "1 for assistant tokens to train on, 0 elsewhere"),
            },
        )


def _entry(dtype: str, shape: str, description: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "description": description}


@dataclass
class DataGenerationConfig:
    """Everything that ``data_config.json`` records of one extraction."""

    VERSION: ClassVar[str] = "2.0"

    version: str
    generated_at: str
    speculators_version: str
    reproducibility: ReproducibilityInfo
    model: ModelConfig
    data: DataConfig
    hidden_states: HiddenStatesConfig
    generation: GenerationConfig
    format: FormatConfig

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: nested dicts, paths as text."""
        return dataclasses.asdict(self, dict_factory=lambda pairs: {key: _plain(value) for key, value in pairs})

    @classmethod
    def from_generator(
        cls,
        generator: Any,
        train_data_path: str,
        seq_length: int,
        cache_dir: str,
        num_samples: int,
        max_samples: int | None = None,
        seed: int = 0,
    ) -> DataGenerationConfig:
        """Read the record off a generator that has been made.

        Args:
            generator: A ``VllmHiddenStatesGenerator``.
            train_data_path: Where the conversations came from.
            seq_length: Longest sequence in tokens.
            cache_dir: Folder of the preprocessed data.
            num_samples: Number of samples in the folder.
            max_samples: The limit that was asked for; None for all.
            seed: Of the preprocessing.

        Raises:
            ValueError: The verifier's config has no hidden size.
        """
        found = PackageVersions.from_environment()
        hidden_size = _get_hidden_size_from_model(generator.model_path)
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        return cls(
            version=cls.VERSION,
            generated_at=datetime.now(timezone.utc).isoformat(),
            speculators_version=found.speculators,
            reproducibility=ReproducibilityInfo(command, found),
            model=ModelConfig(
                generator.model_path,
                generator.tensor_parallel_size,
                generator.vllm_config.cache_config.gpu_memory_utilization,
                hidden_size,
            ),
            data=DataConfig(train_data_path, seq_length, max_samples, num_samples, seed),
            hidden_states=HiddenStatesConfig(generator.layer_ids),
            generation=GenerationConfig(cache_dir),
            format=FormatConfig.create_default(len(generator.layer_ids), hidden_size),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _get_hidden_size_from_model(model_path: str) -> int:
    config = AutoConfig.from_pretrained(model_path, trust_remote_code=True)
    for part in (config, getattr(config, "text_config", None)):
        found = getattr(part, "hidden_size", None)
        if found:
            return int(found)
    raise ValueError(f"Could not determine hidden size for {model_path}: its config has no hidden_size")
