"""The extracted-data folder: a manifest, one file per sample, and its verification.

The folder holds what the trainer of one release of speculators reads, in the form that :mod:`.sample_files` describes
and the manifest names, with sample i of the prepared rows in file i. Nothing else in it has a name that ends in "pt",
because ``list_files`` (speculators ``train/data.py``) takes every such name for a sample.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .atomic import PARTIAL, atomic_file, write_json
from .drift import UsageError
from .sample_files import FORMS, Outline, PtFiles, SampleError, SampleFiles
from .shard import Shard

__all__ = ["Manifest", "SampleStore", "atomic_file", "verify", "write_json"]

MANIFEST = "manifest.json"
LENGTHS = "sample_lengths.json"
DATA_CONFIG = "data_config.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Manifest:
    """What a folder's samples were made from; samples of different manifests never share a folder.

    Attributes:
        model: The verifier as the configuration names it.
        layer_ids: In speculators' convention.
        dtype: As asked for (``auto``, ``float32``, ...).
        dataset_fingerprint: SHA-256 over all prepared rows, ids and masks.
        num_samples: Number of prepared rows.
        seed: Seed of the preparation.
        seq_length: Longest sample in tokens.
        versions: Installed releases by name (vllm, speculators, torch, transformers,
            speculators_compat).
        form: Of the sample files, a name of :data:`~speculators_compat.sample_files.FORMS`. Manifests of before there
            were two do not say it.

    Raises:
        ValueError: There is no such form.
    """

    model: str
    layer_ids: list[int]
    dtype: str
    dataset_fingerprint: str
    num_samples: int
    seed: int
    seq_length: int
    versions: dict[str, str]
    form: str = PtFiles.form

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form: {self.form!r}, not one of {', '.join(FORMS)}")

    def differences(self, other: Manifest) -> list[str]:
        """Fields that differ, as ``name: mine, theirs`` lines."""
        return [
            f"{field.name}: {getattr(other, field.name)!r} there, {getattr(self, field.name)!r} now"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]


class SampleStore:
    """One folder of extracted samples.

    Args:
        folder: Created by the first writer.
        manifest: What this run extracts; :meth:`writing` puts it down before the first sample.

    Raises:
        UsageError: The folder was made from something else, or holds samples without a manifest.
            Nothing is changed.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest, self.files = folder, manifest, FORMS[manifest.form]
        _refuse_other(folder, manifest)

    @classmethod
    def open(cls, folder: Path) -> SampleStore:
        """Open a folder that was written before.

        Raises:
            UsageError: The folder has no readable manifest.
        """
        manifest = _read_manifest(folder)
        if manifest is None:
            raise UsageError(
                f"An extracted-data folder has a {MANIFEST}.",
                f"none in {folder}",
                "Run the extract step.",
            )
        return cls(folder, manifest)

    @contextmanager
    def writing(self, shard: Shard | None = None) -> Iterator[None]:
        """Hold the folder, or one part of it, for one writer, with its manifest and without unfinished files.

        Args:
            shard: The part; writers of other parts may be at work. None: the whole folder.

        Raises:
            UsageError: Another process is writing to the folder, or to this part of it.
        """
        samples = self.folder / self.files.folder
        samples.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            held.enter_context(_locked(self.folder / LOCK, fcntl.LOCK_SH if shard else fcntl.LOCK_EX))
            if shard:
                held.enter_context(_locked(self.folder / f"{LOCK}-{shard}", fcntl.LOCK_EX))
            for leftover in {*self.folder.glob(f"{PARTIAL}*"), *samples.glob(f"{PARTIAL}*")}:
                if shard is None or _belongs(leftover, self.files, shard):
                    leftover.unlink()
            if not (self.folder / MANIFEST).exists():
                write_json(self.folder / MANIFEST, asdict(self.manifest))
            yield

    def path(self, index: int) -> Path:
        """File of sample ``index``."""
        return self.files.path(self.folder, index)

    def write(self, index: int, sample: Mapping[str, Any]) -> int:
        """Write one sample.

        Args:
            index: Row of the prepared data.
            sample: ``input_ids`` int64 [tokens], ``loss_mask`` int64 [tokens], ``hidden_states``
                list of [tokens, hidden], one per layer of the manifest; views do.

        Returns:
            Bytes on the disk.

        Raises:
            ValueError: Lengths or layer count do not agree with each other, or the form has no place for the states'
                dtype; nothing is written.
            OSError: Writing failed; nothing is left behind.
        """
        problem = Outline.of(sample).problem(len(self.manifest.layer_ids))
        if problem:
            raise ValueError(f"sample {index}: {problem}")
        self.files.write(self.path(index), sample)
        return self.path(index).stat().st_size

    def length(self, index: int, input_ids: Any = None) -> int | None:
        """Tokens of a complete sample, without reading its states.

        Args:
            index: Row of the prepared data.
            input_ids: Ids that the sample must hold, int64 [tokens]; a file with others counts as
                unreadable.

        Returns:
            Tokens, or None if the file is missing or unreadable.
        """
        import torch

        try:
            outline = self.files.outline(self.path(index))
        except SampleError:  # whatever is wrong with the file, the sample is extracted again
            return None
        ids = outline.input_ids
        if outline.problem(len(self.manifest.layer_ids)):
            return None
        if input_ids is not None:
            wanted = torch.as_tensor(input_ids)
            if not torch.equal(ids, wanted[: len(ids)] if self.files.may_be_cut else wanted):
                return None
        return int(ids.shape[0])

    def lengths(self, ids_of: Callable[[int], Any] | None = None) -> dict[int, int]:
        """Tokens of every complete sample, by index.

        Args:
            ids_of: Gives the ids that sample i must hold; None: any.
        """
        found = {}
        for index in range(self.manifest.num_samples):
            tokens = self.length(index, None if ids_of is None else ids_of(index))
            if tokens is not None:
                found[index] = tokens
        return found

    def write_lengths(self, lengths: Mapping[int, int]) -> None:
        """Write ``sample_lengths.json``; speculators 0.4 reads it instead of guessing."""
        write_json(self.folder / LENGTHS, {str(index): lengths[index] for index in sorted(lengths)})


def verify(folder: Path) -> list[str]:
    """Read every sample of a folder in full.

    Args:
        folder: A folder written by :class:`SampleStore`.

    Returns:
        One line per problem: missing, unreadable, damaged (the file's checksums), wrong shape, or states that are not
        finite. Empty if the folder is sound.

    Raises:
        UsageError: The folder has no readable manifest.
    """
    store = SampleStore.open(folder)
    recorded = _recorded_lengths(folder)
    problems = []
    for index in range(store.manifest.num_samples):
        problem = _check_sample(store, index, recorded.get(str(index)))
        if problem:
            problems.append(f"{store.path(index).name}: {problem}")
    return problems


def _check_sample(store: SampleStore, index: int, recorded: int | None) -> str:
    import torch

    path = store.path(index)
    if not path.exists():
        return "missing"
    damage = store.files.damage(path)
    if damage:
        return damage
    tokens = store.length(index)
    if tokens is None:
        return "not a sample of this manifest"
    if recorded != tokens:
        return f"{tokens} tokens, {recorded} in {LENGTHS}"
    states = store.files.read(path)["hidden_states"]
    return "" if all(bool(torch.isfinite(state).all()) for state in states) else "states are not finite"


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "One process at a time extracts into a folder, or into one part of it.",
                f"another process holds {path}",
                "Wait for it, or use another output folder.",
            ) from None
        yield


def _belongs(unfinished: Path, files: SampleFiles, shard: Shard) -> bool:
    """Whether an unfinished file is a sample of this part; its name goes on with the writer's host and process."""
    words = unfinished.name.removeprefix(PARTIAL).split(".")
    index = files.index(".".join(words[:2]))
    return index is not None and shard.owns(index)


def _recorded_lengths(folder: Path) -> dict[str, int]:
    try:
        lengths = json.loads((folder / LENGTHS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return lengths if isinstance(lengths, dict) else {}


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return Manifest(**raw)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{folder / MANIFEST} must be a manifest of this version.",
            f"{type(error).__name__}: {error}",
            "Use another output folder, or delete this one.",
        ) from error


def _refuse_other(folder: Path, manifest: Manifest) -> None:
    there = _read_manifest(folder)
    if there is None:
        # Any name that speculators up to 0.7 would take for a sample, or a sample of the other form.
        if any(folder.glob("*pt")) or any(files.found(folder) for files in FORMS.values()):
            raise UsageError(
                "Samples are only added to a folder whose manifest says what they were made from.",
                f"samples, or other files ending in 'pt', but no {MANIFEST} in {folder}",
                "Use another output folder.",
            )
        return
    differences = manifest.differences(there)
    if differences:
        raise UsageError(
            f"The samples in {folder} must come from this model, data, settings and versions.",
            "; ".join(differences),
            "Use another output folder, or go back to its settings. Nothing was changed.",
        )
