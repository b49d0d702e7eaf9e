"""What a run needs, before anything starts: tokens, disk, memory and files, each with its arithmetic.

Nothing is loaded, downloaded beyond ``config.json``, or written, and no code of the checkpoint runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..capture.transport import SLOTS
from ..layers import default_layer_ids
from ..sample_files import FORMS, installed_form
from ..verifier import text_config, text_fields
from .config import RunConfig
from .draft import layer_fields
from .sizes import (
    INDEX_BYTES,
    MASTER_BYTES,
    DraftSize,
    Item,
    Shape,
    batch_bytes,
    draft_size,
    readable,
    state_bytes,
    state_dtype_bytes,
    total,
)
from .space import check_space, free_space, needed
from .summary import STEPS
from .train import METRICS
from .train_options import EAGLE3
from .trainers import has_schema, trains_on_rows
from .verifier import Verifier, check_fit, read_config
from .weights import weights_item
from .workload import Workload, workload

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["Plan", "as_renderable", "check", "make_plan"]

MIN_BATCHED_TOKENS = 8192  # speculators' own floor (vllm_hidden_states_generator.py, MIN_MAX_BATCHED_TOKENS)
# What the sizes need; a config that leaves one to its class's default is read by transformers instead.
FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "rms_norm_eps",
    "vocab_size",
)


@dataclass(frozen=True)
class Plan:
    """The plan of one run.

    Attributes:
        config: The run.
        work: Its samples.
        sections: Items by heading; the first is the disk.
        free: Folder and free bytes of the run folder's disk.
        files: Name pattern and number of each kind of file that the run leaves; None for "one a sample", unknown yet.
        notes: What the figures leave out.
    """

    config: RunConfig
    work: Workload
    sections: dict[str, list[Item]]
    free: tuple[str, int]
    files: list[tuple[str, int | None]]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON output; sizes in bytes."""
        work = self.work
        return {
            "model": self.config.model,
            "output": str(self.config.output),
            "data": {
                "samples": work.samples,
                "tokens": work.tokens,
                "exact": work.exact,
                "source": work.source,
                "extracted_samples": work.done_samples,
                "extracted_tokens": work.done_tokens,
            },
            "disk_free": {"folder": self.free[0], "bytes": self.free[1]},
            **{
                _key(name): {
                    "items": [item.as_dict() for item in items],
                    "bytes": total(items),
                    "complete": all(item.bytes is not None for item in items),
                }
                for name, items in self.sections.items()
            },
            "files": [{"name": name, "count": count} for name, count in self.files],
            "notes": self.notes,
        }


DISK = "disk, still to write"
EXTRACT_GPU = "GPU memory of extraction, a rank"
EXTRACT_HOST = "host memory of extraction"
TRAIN_GPU = "GPU memory of training, a process"
TRAIN_START = "host memory as training starts, this node"
TRAIN_HOST = "host memory of training, this node"
KEYS = {
    DISK: "disk",
    EXTRACT_GPU: "extract_gpu_per_rank",
    EXTRACT_HOST: "extract_host",
    TRAIN_GPU: "train_gpu_per_process",
    TRAIN_START: "train_host_start",
    TRAIN_HOST: "train_host",
}


def _key(section: str) -> str:
    return KEYS[section]


def make_plan(config: RunConfig) -> Plan:
    """Work out what a run needs.

    Args:
        config: The run.

    Raises:
        UsageError: The verifier's config or the data cannot be read, they do not fit the run, or the run folder holds
            something else.
    """
    raw = read_config(config.verifier)
    verifier = _verifier(config, raw)
    check_fit(config, verifier)
    shape = Shape.of(verifier)
    draft = draft_size(layer_fields(config.train.draft, verifier), config.vocab.draft_vocab_size)
    work = workload(config, verifier, shape)
    folder, free = free_space(config)
    return Plan(
        config=config,
        work=work,
        sections={
            DISK: needed(config, shape, draft, work),
            EXTRACT_GPU: _extract_gpu(config, raw, verifier, shape),
            EXTRACT_HOST: _extract_host(config, shape),
            TRAIN_GPU: _train_gpu(config, shape, draft),
            TRAIN_START: [_train_start(config, draft)],
            TRAIN_HOST: _train_host(config, shape),
        },
        free=(str(folder), free),
        files=_files(config, work),
        notes=[*NOTES, *_notes_of_trainer(config)],
    )


def check(plan: Plan) -> None:
    """Refuse a plan whose disk is too small.

    Args:
        plan: The plan.

    Raises:
        UsageError: The disk cannot hold what is still missing.
    """
    check_space(plan.config, plan.sections[DISK], plan.work.exact)


NOTES = [
    "GB is 10^9 bytes.",
    "Extraction: the KV cache here is the least that a step needs; vLLM fills extract.gpu_memory_utilization with it.",
    "Extraction: activations, CUDA's own memory and repacked weights come on top.",
    "Training: activations of the draft's layers and CUDA's own memory come on top.",
]


def _notes_of_trainer(config: RunConfig) -> list[str]:
    """Where the installed trainer differs from the one that the figures are of."""
    notes = []
    if trains_on_rows():
        notes.append(
            "Training: from speculators 0.5 on the output head is frozen, and Muon keeps one moment: it is less."
        )
    if config.train.algorithm != EAGLE3:
        notes.append(f"Training: the figures are of an EAGLE-3 draft, not of one of the kind {config.train.algorithm}.")
    return notes


def _verifier(config: RunConfig, raw: dict[str, Any]) -> Verifier:
    """The verifier as data: unlike the steps, a plan runs no code of the checkpoint, trusted or not."""
    fields = text_fields(raw)
    complete = all(fields.get(name) is not None for name in FIELDS)
    text = SimpleNamespace(**fields) if complete else text_config(config.verifier)
    layer_ids = config.layer_ids
    if layer_ids is None:
        layer_ids = default_layer_ids(int(text.num_hidden_layers))
    return Verifier(raw, text, list(layer_ids))


def _extract_gpu(config: RunConfig, raw: dict[str, Any], verifier: Verifier, shape: Shape) -> list[Item]:
    ranks, value = config.extract.tensor_parallel_size, state_dtype_bytes(config)
    prompt = shape.longest_sample(config) + 1
    budget = _step_tokens(config, shape)
    # A step holds its own tokens and the earlier chunks of the one prompt that it cuts.
    cached = budget + prompt
    token, how = shape.cache_bytes(ranks, value)
    return [
        weights_item(config.verifier, raw, verifier.text, ranks),
        Item("KV cache of a step", cached * token, f"{cached:,} tokens x {how}"),
        Item(
            "captured states (rank 0)",
            2 * budget * state_bytes(config, shape),
            f"2 steps x {budget:,} tokens x {shape.captured} layers x {shape.hidden} x {value} B",
        ),
    ]


def _step_tokens(config: RunConfig, shape: Shape) -> int:
    """Most tokens of one engine step."""
    return config.extract.max_num_batched_tokens or max(MIN_BATCHED_TOKENS, shape.longest_sample(config) + 1)


def _extract_host(config: RunConfig, shape: Shape) -> list[Item]:
    token, budget = state_bytes(config, shape), _step_tokens(config, shape)
    waiting, longest = 2 * config.extract.writers, shape.longest_sample(config)
    return [
        Item("steps in /dev/shm", SLOTS * budget * token, f"{SLOTS} x {budget:,} tokens x {token:,} B"),
        Item(
            "samples waiting for the disk",
            waiting * longest * token,
            f"at most {waiting} (2 x extract.writers) x {longest:,} tokens x {token:,} B",
        ),
    ]


def _train_gpu(config: RunConfig, shape: Shape, draft: DraftSize) -> list[Item]:
    processes, section = _shards(config), config.train
    shard = f" / {processes} (FSDP)" if processes > 1 else ""
    items = [
        Item("draft parameters", MASTER_BYTES * draft.all // processes, f"{draft.all:,} x {MASTER_BYTES} B{shard}"),
        Item("gradients", MASTER_BYTES * draft.trained // processes, f"{draft.trained:,} x {MASTER_BYTES} B{shard}"),
        Item(
            "AdamW's moments",
            2 * MASTER_BYTES * draft.trained // processes,
            f"{draft.trained:,} x 2 x {MASTER_BYTES} B{shard}",
        ),
    ]
    if processes > 1:
        size = MASTER_BYTES * (draft.all - draft.layers) + 2 * draft.layers
        items.append(
            Item("gathered parameters", size, "the whole draft on each process: layers in bfloat16, rest float32")
        )
    copies = 2 * section.ttt_steps + 4
    vocab = draft.vocab_sizes[1]
    items += [
        Item("batch", batch_bytes(config, shape), _batch_how(config, shape)),
        Item(
            "logits and probabilities",
            copies * config.total_seq_len * vocab * 4,
            f"(2 x {section.ttt_steps} ttt_steps + 4) x {config.total_seq_len:,} tokens x {vocab:,} x 4 B",
        ),
    ]
    return items


def _shards(config: RunConfig) -> int:
    """Processes that share the draft; from speculators 0.7 on each has the whole of it unless it is told to share."""
    if has_schema() and not config.train.options.get("fsdp_shard"):
        return 1
    return config.train.num_processes


def _train_start(config: RunConfig, draft: DraftSize) -> Item:
    processes = config.train.num_processes
    how = f"{processes} processes x {draft.all:,} x {MASTER_BYTES} B, before they move to the GPU"
    return Item("the draft as it is made", processes * MASTER_BYTES * draft.all, how)


def _train_host(config: RunConfig, shape: Shape) -> list[Item]:
    section, batch = config.train, batch_bytes(config, shape)
    ready = section.num_processes * (section.num_workers * section.prefetch_factor + 1)
    building = section.num_processes * max(1, section.num_workers) * 2
    return [
        Item(
            "batches",
            ready * batch,
            f"{section.num_processes} processes x ({section.num_workers} workers x {section.prefetch_factor} + 1) x "
            f"{readable(batch)}",
        ),
        Item(
            "batches being built",
            building * batch,
            f"at most 2 more (samples, and their concatenation) in each of {building // 2} builders",
        ),
    ]


def _batch_how(config: RunConfig, shape: Shape) -> str:
    values = f"{shape.captured} layers x {shape.hidden} x {state_dtype_bytes(config)} B"
    return f"{config.total_seq_len:,} tokens x ({values} + {3 * INDEX_BYTES} B)"


def _files(config: RunConfig, work: Workload) -> list[tuple[str, int | None]]:
    epochs, samples = config.train.epochs, FORMS[installed_form()]
    scheduler = [] if config.train.scheduler == "none" else [("checkpoints/*/scheduler_state_dict.pt", epochs)]
    return [
        ("prepared/prepared.json", 1),
        (str(Path("data", samples.folder, samples.name.format(index="*"))), work.samples),
        *((f"data/{name}", 1) for name in ("manifest.json", "sample_lengths.json", "data_config.json")),
        *((f"vocab/{name}", 1) for name in ("token_freq.pt", "d2t.npy", "t2d.npy")),
        ("checkpoints/*/config.json", epochs),
        ("checkpoints/*/model*.safetensors", epochs),
        ("checkpoints/*/optimizer_state_dict.pt", epochs),
        *scheduler,
        (METRICS, 1),
        ("steps/*.json", len(STEPS)),
        ("summary.json", 1),
        ("report.html", 1),
    ]


def as_renderable(plan: Plan) -> Group:
    """The plan for people."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{plan.config.output}: {plan.config.model}"), title_justify="left")
    table.add_column("what", style="bold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("how", overflow="fold")
    for row in _rows(plan):
        if row is None:
            table.add_section()
        else:
            # Text, because names of models and folders may look like markup.
            table.add_row(*(Text(cell) for cell in row))
    files = ", ".join(f"{name} ({'one a sample' if count is None else count})" for name, count in plan.files)
    return Group(table, Text(f"Files: {files}"), *(Text(note) for note in plan.notes))


def _rows(plan: Plan) -> list[tuple[str, str, str] | None]:
    work = plan.work
    bound = "" if work.exact or work.samples is None else "<= "
    rows: list[tuple[str, str, str] | None] = [
        ("samples", _count(work.samples, bound), work.source),
        (
            "tokens",
            _count(work.tokens, bound),
            f"{work.done_tokens:,} of them extracted ({work.done_samples:,} samples)",
        ),
    ]
    for name, items in plan.sections.items():
        incomplete = any(item.bytes is None for item in items)
        rows += [None, (name, f"{'>= ' if incomplete else ''}{readable(total(items))}", "")]
        rows += [(f"  {item.name}", readable(item.bytes), item.how) for item in items]
        if name == DISK:
            rows.append(("  free", readable(plan.free[1]), plan.free[0]))
    return rows


def _count(number: int | None, bound: str) -> str:
    return "unknown" if number is None else f"{bound}{number:,}"
