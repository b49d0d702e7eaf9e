"""The typed configuration of a run: every field described, unknown keys refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..drift import UsageError
from ..mask_blocks import round_up

__all__ = [
    "DraftConfig",
    "ExtractConfig",
    "PrepareConfig",
    "RunConfig",
    "TrainConfig",
    "VocabConfig",
    "load_config",
    "round_up",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class PrepareConfig(_Section):
    """Conversations into token ids and loss masks (``load_and_preprocess_dataset``)."""

    data: str = Field(
        description="A .jsonl or .json file with a `conversations` list in each line, or with `input_ids` and "
        "`loss_mask`; or one of speculators' data sets (DATASET_CONFIGS: sharegpt, ultrachat)."
    )
    max_samples: int | None = Field(
        None,
        ge=1,
        description="Use at most this many conversations, chosen after shuffling; null: all.",
    )
    num_proc: int = Field(8, ge=1, description="Processes for tokenising.")
    assistant_pattern: str | None = Field(
        None,
        description="Regular expression, group 1 the assistant's text; null: from the template.",
    )
    thinking: Literal["train", "mask"] = Field(
        "train",
        description="Thinking blocks of the answers are trained on, or stay in the samples but out of the loss mask.",
    )
    turn_dropout: bool = Field(
        False,
        description="Keep only a random number of first turns of each conversation.",
    )


class ExtractConfig(_Section):
    """Hidden states of the verifier (``VllmHiddenStatesGenerator``)."""

    tensor_parallel_size: int = Field(1, ge=1, description="GPUs (on a CPU: processes) that share the verifier.")
    gpu_memory_utilization: float = Field(0.8, gt=0, le=1, description="Share of each GPU's memory that vLLM may use.")
    max_num_batched_tokens: int | None = Field(
        None, ge=1, description="Tokens in one engine step; null: speculators' default."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Activation dtype of the verifier, which the states keep; auto: vLLM's choice.",
    )
    prompts_per_call: int = Field(
        64,
        ge=1,
        description="Prompts from which the next engine step is packed; a step holds no more of them.",
    )
    sort_by_length: bool = Field(
        False,
        description="Extract the longest prompts first. The files and their numbers are the same.",
    )
    limit_mm_per_prompt: dict[str, int] | None = Field(
        None,
        description="Multimodal inputs that vLLM plans for in a prompt, by kind; null: none of any "
        "kind, since prompts are token ids.",
    )
    writers: int = Field(
        8, ge=1, description="Most threads that write sample files; one is started only when all others are busy."
    )


class VocabConfig(_Section):
    """The draft's vocabulary (``build_vocab_mappings_from_distribution``)."""

    draft_vocab_size: int = Field(
        32000,
        ge=1,
        description="Tokens that the draft can propose: the most frequent trainable ones.",
    )


class DraftConfig(_Section):
    """Shape of the draft's decoder layer; what is null comes from the verifier's text config."""

    num_layers: int = Field(1, ge=1, description="Decoder layers.")
    num_attention_heads: int | None = Field(None, ge=1, description="Attention heads; null: the verifier's.")
    num_key_value_heads: int | None = Field(
        None,
        ge=1,
        description="Key/value heads; null: the verifier's, or all heads if the verifier uses MLA.",
    )
    head_dim: int | None = Field(
        None,
        ge=1,
        description="Size of a head; null: the verifier's, v_head_dim if the verifier uses MLA.",
    )
    intermediate_size: int | None = Field(None, ge=1, description="Width of the MLP; null: the verifier's.")
    rope_theta: float | None = Field(None, gt=0, description="Base of the rotary embedding; null: the verifier's.")
    rope_scaling: dict[str, Any] | Literal["none", "verifier"] = Field(
        "verifier",
        description="Scaling of the rotary embedding: a table, `none`, or the verifier's.",
    )
    max_position_embeddings: int | None = Field(None, ge=1, description="Longest context; null: the verifier's.")
    norm_before_residual: bool = Field(
        False,
        description="Take the residual after the hidden norm (drafts exist in both forms).",
    )


class TrainConfig(_Section):
    """Training of the draft (``Trainer``)."""

    algorithm: str = Field(
        "eagle3",
        min_length=1,
        description="Kind of draft: eagle3, or from speculators 0.5 on another one that its trainer offers.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Further options of the installed speculators' own trainer (0.5 and later), by its names; what a "
        "field here already says is refused.",
    )
    num_processes: int = Field(
        1, ge=1, description="Training processes of this node; more than 1 goes through torchrun."
    )
    epochs: int = Field(20, ge=1, description="Passes over the training split; a checkpoint follows each.")
    lr: float = Field(1e-4, gt=0, description="Learning rate (AdamW).")
    total_seq_len: int | None = Field(
        None,
        ge=1,
        description="Tokens in one process's packed batch, rounded up to 128s; null: `seq_length`.",
    )
    train_ratio: float = Field(0.9, gt=0, lt=1, description="Share of the samples to train on; the rest validates.")
    scheduler: Literal["linear", "cosine", "none"] = Field("linear", description="Learning-rate schedule.")
    warmup_steps: int | None = Field(
        None,
        ge=1,  # upstream takes 0 for "not given"
        description="Warm-up steps; null: speculators' default, a hundredth of all.",
    )
    ttt_steps: int = Field(3, ge=1, description="Draft tokens trained a position, and served a step.")
    ttt_step_loss_decay: float = Field(1.0, gt=0, description="Weight of each further step's loss.")
    use_off_policy_tokens: bool = Field(
        False, description="Feed ground-truth tokens between the steps instead of the draft's own."
    )
    noise_std: float = Field(
        0.05,
        ge=0,
        description="Half-width of the uniform noise on the input states; never on targets.",
    )
    num_workers: int = Field(
        2,
        ge=0,
        description="Loader processes of each training process; 0 loads in the process itself.",
    )
    prefetch_factor: int = Field(2, ge=1, description="Batches that each loader process keeps ready.")
    resume: bool = Field(True, description="Go on from the last complete checkpoint of this run folder.")
    draft: DraftConfig = Field(default_factory=DraftConfig, description="Shape of the draft.")


class RunConfig(_Section):
    """One run: a verifier, its data, and the folder that everything goes to."""

    model: str = Field(min_length=1, description="The verifier: a folder or a Hugging Face id.")
    output: Path = Field(description="Run folder. Paths are relative to the current directory.")
    trust_remote_code: bool = Field(
        False,
        description="Let the checkpoint's own code run, in every loader. Kimi-K2.5 needs it.",
    )
    seed: int = Field(0, description="Seed of the shuffle, the split and the initialisation.")
    seq_length: int = Field(2048, ge=2, description="Longest sample in tokens; longer ones are cut and counted.")
    layer_ids: list[int] | None = Field(
        None,
        description="Layers to capture: the state after layer k is k. Three inputs of the "
        "draft, then the verifier's last layer. null: upstream's rule, 2, N//2, N-3, N-1.",
    )
    prepare: PrepareConfig
    extract: ExtractConfig = Field(default_factory=ExtractConfig, description="Step 2.")
    vocab: VocabConfig = Field(default_factory=VocabConfig, description="Step 3.")
    train: TrainConfig = Field(default_factory=TrainConfig, description="Step 4.")

    @model_validator(mode="after")
    def _batch_holds_a_sample(self) -> RunConfig:
        if self.total_seq_len < self.seq_length:
            raise ValueError(
                f"train.total_seq_len ({self.train.total_seq_len}) must hold one sample (seq_length {self.seq_length})"
            )
        return self

    @property
    def verifier(self) -> str:
        """The model as data and checkpoints name it: an absolute folder, or the id.

        A relative folder would be lost to whoever serves the draft from another place.
        """
        return str(Path(self.model).resolve()) if Path(self.model).is_dir() else self.model

    @property
    def total_seq_len(self) -> int:
        """Tokens in one packed batch, a multiple of 128."""
        return round_up(self.train.total_seq_len or self.seq_length)

    @property
    def prepared_dir(self) -> Path:
        """Tokenised rows."""
        return self.output / "prepared"

    @property
    def data_dir(self) -> Path:
        """Extracted samples."""
        return self.output / "data"

    @property
    def vocab_dir(self) -> Path:
        """Token counts and vocabulary mappings."""
        return self.output / "vocab"

    @property
    def checkpoint_dir(self) -> Path:
        """One folder per epoch."""
        return self.output / "checkpoints"

    @property
    def steps_dir(self) -> Path:
        """One JSON report per finished step."""
        return self.output / "steps"


def load_config(path: Path) -> RunConfig:
    """Read and check a configuration.

    Args:
        path: A YAML file.

    Returns:
        The configuration.

    Raises:
        UsageError: The file is missing, no YAML, or a key or value is wrong; every wrong one is
            named.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("A readable YAML configuration is needed.", f"{path}: {error}", _EXAMPLE) from error
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError("The configuration must be YAML.", f"{path}: {error}", _EXAMPLE) from error
    if not isinstance(raw, dict):
        raise UsageError("The configuration must be a mapping.", f"{path} holds {type(raw).__name__}", _EXAMPLE)
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise UsageError(f"The configuration {path} must be valid.", problems, _EXAMPLE) from error


_EXAMPLE = "configs/kimi-k2.5.yaml is a complete example; docs/pipeline.md describes every field."


def _problem(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"]) or "configuration"
    if item["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    return f"{where}: {item['msg']}"
