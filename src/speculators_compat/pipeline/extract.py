"""Step 2: the verifier's hidden states, by ``VllmHiddenStatesGenerator``, one file per row.

The files are of the form that the trainer of the installed speculators reads. Resuming fills in what is missing or
unreadable, wherever it is; a folder of another model, data set, setting or version is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..drift import UsageError
from ..layers import to_vllm_layer_ids
from ..shard import Shard
from ..store import DATA_CONFIG, SampleStore, write_json
from .config import RunConfig
from .manifest import manifest_of
from .prepare import load_rows
from .space import check_rows
from .summary import read_step, recorded_step
from .verifier import Verifier, check_run
from .workload import row_lengths
from .writing import Writers, shares

__all__ = ["fill", "run"]

log = logging.getLogger(__name__)


def run(config: RunConfig, shard: Shard | None = None) -> None:
    """Extract every sample that the run folder does not have yet.

    Args:
        config: The run.
        shard: One part of the samples, beside other engines at work on theirs. Once all parts are there, a run without
            a shard finds nothing to extract and completes the folder.

    Raises:
        UsageError: The folder holds samples of something else, there are no prepared rows, the disk cannot hold what is
            missing, or a row is longer than the verifier takes and the trainer would leave its sample out.
        OSError: A sample could not be written.
    """
    verifier = check_run(config)
    rows, fingerprint = load_rows(config)
    store = SampleStore(config.data_dir, manifest_of(config, verifier, fingerprint, len(rows)))
    with store.writing(shard):
        lengths = store.lengths(lambda index: rows[index]["input_ids"])
        missing = [index for index in range(len(rows)) if index not in lengths and (shard is None or shard.owns(index))]
        log.info("%d of %d samples are there, %d to extract", len(lengths), len(rows), len(missing))
        if missing:
            if not store.files.may_be_cut:
                _check_lengths(config, verifier, row_lengths(rows))
            check_rows(config, verifier, rows, lengths)
        if missing or not read_step(config, _step(shard)):
            _fill(config, verifier, rows, missing, store, lengths, shard)


def _step(shard: Shard | None) -> str:
    """Name of this part's report; the one without a part is the folder's."""
    return "extract" if shard is None else f"extract-{shard}"


def _fill(
    config: RunConfig,
    verifier: Verifier,
    rows: Any,
    missing: list[int],
    store: SampleStore,
    lengths: dict[int, int],
    shard: Shard | None,
) -> None:
    """Extract the missing samples and report on all."""
    with recorded_step(config, _step(shard)) as report:
        done = _Tally(lengths)
        try:
            if missing:
                _extract(config, verifier, rows, missing, store, done)
        finally:
            if shard is None:  # a part knows only what was there when it began
                store.write_lengths(done.lengths)
        report.update(
            samples=len(done.lengths),
            tokens=sum(done.lengths.values()),
            extracted=len(missing),
            truncated=done.truncated,
            bytes=done.bytes,
            shares=done.shares,
            layer_ids=verifier.layer_ids,
            vllm_layer_ids=to_vllm_layer_ids(verifier.layer_ids),
        )


class _Tally:
    """What has been written so far."""

    def __init__(self, lengths: dict[int, int]) -> None:
        self.lengths, self.new_tokens, self.truncated, self.bytes = dict(lengths), 0, 0, 0
        self.shares: dict[str, float] = {}

    def add(self, index: int, tokens: int, size: int, cut: int) -> None:
        """Count a sample of ``tokens`` tokens and ``size`` bytes, ``cut`` tokens shorter than its row."""
        self.lengths[index] = tokens
        self.new_tokens += tokens
        self.bytes += size
        self.truncated += cut > 0


def _max_model_len(config: RunConfig, verifier: Verifier) -> int:
    """One token more than the longest row: vLLM plans for the token that prefill would sample."""
    limit = verifier.max_positions
    return config.seq_length + 1 if limit is None else min(config.seq_length + 1, limit)


def _check_lengths(config: RunConfig, verifier: Verifier, lengths: list[int]) -> None:
    """Refuse rows that the engine would cut where the trainer takes a sample only with its whole row."""
    longest = _max_model_len(config, verifier) - 1
    cut = sum(length > longest for length in lengths)
    if cut:
        raise UsageError(
            f"Every row must fit the verifier, {longest} tokens: the trainers of speculators 0.5 and later leave out a "
            "sample that is shorter than its row.",
            f"{cut} of {len(lengths)} rows are longer, seq_length is {config.seq_length}",
            f"Set seq_length to {longest} or less and prepare again, in another output folder.",
        )


def _generator(config: RunConfig, verifier: Verifier) -> Any:
    from speculators.data_generation import VllmHiddenStatesGenerator

    section = config.extract
    # Under the shim both releases take the keyword options; without it this call would have to
    # fail.
    return VllmHiddenStatesGenerator(
        model_path=config.verifier,
        layer_ids=verifier.layer_ids,
        max_model_len=_max_model_len(config, verifier),
        gpu_memory_utilization=section.gpu_memory_utilization,
        tensor_parallel_size=section.tensor_parallel_size,
        max_num_batched_tokens=section.max_num_batched_tokens,
        dtype=section.dtype,
        trust_remote_code=config.trust_remote_code,
        limit_mm_per_prompt=section.limit_mm_per_prompt,
        overlong="truncate",
    )


def _extract(
    config: RunConfig,
    verifier: Verifier,
    rows: Any,
    missing: list[int],
    store: SampleStore,
    done: _Tally,
) -> None:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("extract"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]:,} tokens"), TimeRemainingColumn(),
    )  # fmt: skip
    section = config.extract
    with _generator(config, verifier) as generator, Progress(*columns) as progress:
        write_json(store.folder / DATA_CONFIG, _data_config(config, generator, verifier, store))
        task = progress.add_task("extract", total=len(missing), tokens=0)

        def written(*sample: int) -> None:
            done.add(*sample)
            progress.update(task, advance=1, tokens=done.new_tokens)

        order = _order(config, rows, missing)
        done.shares = fill(
            generator, rows, order, store, written, writers=section.writers, window=section.prompts_per_call
        )


def fill(
    generator: Any,
    rows: Any,
    order: Sequence[int],
    store: SampleStore,
    written: Callable[[int, int, int, int], None],
    *,
    writers: int,
    window: int,
) -> dict[str, float]:
    """Extract rows and write their samples, both at the same time.

    Args:
        generator: Free for a call.
        rows: By index; each has ``input_ids`` and ``loss_mask``, integer tensors [tokens].
        order: Indices in the order in which they are extracted.
        store: Open for writing.
        written: Told of each sample on the disk: index, tokens, bytes, tokens that were cut off.
        writers: Most threads that write.
        window: Prompts from which a step is packed.

    Returns:
        Shares of the wall time, as :func:`~speculators_compat.pipeline.writing.shares` describes them.

    Raises:
        OSError: A sample could not be written.
    """
    reading: dict[int, Any] = {}

    def prompts() -> Iterator[Any]:
        for place, index in enumerate(order):
            reading[place] = row = rows[index]
            yield row["input_ids"]

    begun = time.monotonic()
    with Writers(writers) as pool, generator.stream(prompts(), window=window, ordered=False) as results:
        for result in results:
            place = result["index"]
            # No more samples wait than the backlog holds: a full disk shows at once, not at the end.
            for sample in pool.submit(_write, store, order[place], reading.pop(place), result):
                written(*sample)
            del result  # or it would keep its slot of the transport while the next one is waited for
        for sample in pool.finish():
            written(*sample)
    return shares(time.monotonic() - begun, results.seconds, pool.waited_s)


def _order(config: RunConfig, rows: Any, missing: list[int]) -> list[int]:
    """Indices in the order in which they are extracted."""
    if config.extract.sort_by_length:
        return sorted(missing, key=lambda index: (-len(rows[index]["input_ids"]), index))
    return missing


def _write(store: SampleStore, index: int, row: Any, result: dict[str, Any]) -> tuple[int, int, int, int]:
    """Pair a result with its own row's mask and write both; returns index, tokens, bytes, tokens cut."""
    import torch

    ids, mask = row["input_ids"].long(), row["loss_mask"].long()
    kept = len(result["input_ids"])
    if kept != len(ids) - result.get("truncated", 0) or not torch.equal(result["input_ids"].cpu(), ids[:kept]):
        raise RuntimeError(f"the generator returned other ids than those of row {index}; nothing was written for it")
    sample = {
        "input_ids": ids[:kept],
        "hidden_states": result["hidden_states"],
        "loss_mask": mask[:kept],
    }
    return index, kept, store.write(index, sample), len(ids) - kept


def _data_config(config: RunConfig, generator: Any, verifier: Verifier, store: SampleStore) -> dict[str, Any]:
    """Speculators' own description of the folder, which from 0.5 on is the restored one and knows the old form only."""
    from speculators.data_generation.config_generator import DataGenerationConfig

    described = DataGenerationConfig.from_generator(
        generator,
        train_data_path=config.prepare.data,
        seq_length=config.seq_length,
        cache_dir=str(config.prepared_dir),
        num_samples=store.manifest.num_samples,
        max_samples=config.prepare.max_samples,
        seed=config.seed,
    )
    content: dict[str, Any] = described.to_dict()
    files = store.files.describe(len(verifier.layer_ids), verifier.hidden_size)
    return content if files is None else {**content, "format": files}
