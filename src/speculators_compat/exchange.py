"""Extracted samples from the form of speculators 0.3 and 0.4 into that of 0.5 and later, and back.

The files are described in :mod:`.sample_files`. The new form also has rows: a data set of the datasets library
(``input_ids``, ``loss_mask``, ``seq_len``), row i of it beside file i of the states (speculators ``train/data.py``,
``ArrowDataset``). What ``export`` makes has both in one folder, which is ``--data-path`` of speculators' own trainer;
the pipeline keeps the rows in ``prepared/rows`` and the states in ``data``, and such a folder can be exported too. Both
forms hold the same states of the same layers; only the layers' names differ by one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import activation, versions
from .drift import UsageError
from .layers import from_vllm_layer_ids, to_vllm_layer_ids
from .pipeline.prepare import fingerprint
from .sample_files import FORMS, Outline, PtFiles, SampleError, SampleFiles, StateFiles
from .store import DATA_CONFIG, LENGTHS, MANIFEST, Manifest, SampleStore, write_json

__all__ = ["export", "import_"]

OLD, NEW = FORMS[PtFiles.form], FORMS[StateFiles.form]
ROWS = Path("prepared", "rows")  # of a run folder, beside its data
RECORD = "exchange.json"
FREQUENCIES = "token_freq.pt"


def export(source: Path, target: Path, rows: Path | None = None) -> int:
    """Write extracted samples as one folder of the new form.

    Args:
        source: A folder of this library's ``extract`` step, of either form, or of speculators' own script for the old.
        target: Folder to make; it is one of this library's too, with a manifest of the new form where the source has
            one. ``data_config.json`` stays as the extraction wrote it.
        rows: Prepared rows of a folder that is of the new form already, whose masks are there; None: in the folder
            itself, or ``prepared/rows`` beside it, as in a run folder.

    Returns:
        Number of samples.

    Raises:
        UsageError: Samples are missing or unreadable, their layers or rows are not known or others, or the target
            exists.
    """
    activation.activate()  # datasets may need a drift to read its own rows
    layer_ids = _layer_ids(source)
    old = _is_old(source)
    files = _sample_files(OLD if old else NEW, source)
    with _new_folder(target) as folder, tempfile.TemporaryDirectory(dir=target.parent) as cache:
        (folder / NEW.folder).mkdir()
        if old:
            _write_states(files, folder, len(layer_ids))
        else:
            _copy_states(files, folder, _own_rows(source, rows), len(layer_ids))
        made = _dataset(files if old else [], None if old else _rows_folder(source, rows), cache)
        made.save_to_disk(str(folder))
        _count_tokens(made, folder / FREQUENCIES)
        write_json(folder / RECORD, {"layer_ids": layer_ids, "vllm_layer_ids": to_vllm_layer_ids(layer_ids)})
        _copy(source, folder, (DATA_CONFIG, LENGTHS))
        own = _json(source / MANIFEST)
        if own:
            write_json(folder / MANIFEST, {**own, "form": NEW.form})
    return len(files)


def import_(
    source: Path,
    target: Path,
    model: str | None = None,
    vllm_layer_ids: Sequence[int] | None = None,
    rows: Path | None = None,
) -> int:
    """Write a folder of the new form as ``data_<i>.pt``.

    Args:
        source: A prepared folder with its ``hidden_states``, or the ``data`` folder of a run.
        target: Folder to make.
        model: The verifier; needed where the folder does not say it (it was not made by :func:`export`).
        vllm_layer_ids: The layers of the states in vLLM's convention, the last one included; needed as ``model`` is.
        rows: Prepared rows; None: as :func:`export`.

    Returns:
        Number of samples.

    Raises:
        UsageError: Rows or states are missing, of other tokens than each other, or of unknown layers; or the target
            exists.
    """
    activation.activate()
    found = _own_rows(source, rows)
    manifest = _manifest(source, found, model, vllm_layer_ids)
    with _new_folder(target) as folder:
        store = SampleStore(folder, manifest)
        with store.writing():
            lengths = {index: _import_one(source, store, index, row) for index, row in enumerate(found)}
            store.write_lengths(lengths)
        _copy(source, folder, (DATA_CONFIG,))
    return len(found)


class _new_folder:  # noqa: N801 (used as a function)
    """A folder that appears under its name once it is complete."""

    def __init__(self, target: Path) -> None:
        if target.exists():
            raise UsageError("The target must be a new folder.", f"{target} exists", "Name another, or delete it.")
        target.parent.mkdir(parents=True, exist_ok=True)
        self.target = target
        self.folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".exchange-"))

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.folder.chmod(0o755)  # mkdtemp's own is private
            self.folder.rename(self.target)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def _layer_ids(source: Path) -> list[int]:
    """From the manifest of this library, or from speculators' own description of the folder."""
    for name, keys in ((MANIFEST, ("layer_ids",)), (DATA_CONFIG, ("hidden_states", "layer_ids"))):
        content: Any = _json(source / name)
        for key in keys:
            content = content.get(key) if isinstance(content, dict) else None
        if content:
            return [int(layer_id) for layer_id in content]
    raise UsageError(
        "The folder must say which layers it holds.",
        f"neither {MANIFEST} nor {DATA_CONFIG} with layer_ids in {source}",
        "Extract again, or write data_config.json as speculators does.",
    )


def _is_old(source: Path) -> bool:
    """Whether a folder is of the old form: as its manifest says, or by the files it has."""
    manifest = _json(source / MANIFEST)
    if manifest:
        return bool(manifest.get("form", OLD.form) == OLD.form)
    return not NEW.found(source)


def _sample_files(form: SampleFiles, source: Path) -> list[Path]:
    """The files in the order of their numbers, without a gap: row i of the new form must be sample i."""
    found = form.found(source)
    manifest = _json(source / MANIFEST)
    count = manifest.get("num_samples", 0) if manifest else max(found, default=-1) + 1
    missing = [index for index in range(count) if index not in found]
    if missing or not found:
        raise UsageError(
            "Every sample must be there.", f"{len(missing)} of {count} missing in {source}", "Extract them first."
        )
    return list(found.values())


def _rows_folder(source: Path, given: Path | None) -> Path:
    """Where the prepared rows of a folder of the new form are."""
    places = [given] if given else [source, source.parent / ROWS]
    found = next((place for place in places if (place / "state.json").is_file()), None)
    if found is None:
        raise UsageError(
            "The new form is a prepared data set, and files of states beside it.",
            f"no state.json in {' or '.join(map(str, places))}",
            "Name the rows' folder with --rows.",
        )
    return found


def _own_rows(source: Path, given: Path | None) -> Any:
    """The prepared rows of a folder of the new form, ids and masks as tensors."""
    from datasets import load_from_disk

    found = _rows_folder(source, given)
    rows = load_from_disk(str(found))
    rows.set_format(type="torch", columns=["input_ids", "loss_mask"])
    recorded = _json(source / MANIFEST).get("dataset_fingerprint")
    # Rows in the same folder may be cut, as samples of the old form may.
    if found != source and recorded and recorded != fingerprint(rows):
        raise UsageError(
            "The rows must be those that the states were extracted from.",
            f"other ids or masks in {found} than {source / MANIFEST} records",
            "Name their folder with --rows.",
        )
    return rows


def _write_states(files: list[Path], folder: Path, layers: int) -> None:
    for index, path in enumerate(files):
        sample = _read(OLD, path)
        _check_shapes(sample, path, layers)
        NEW.write(NEW.path(folder, index), sample)


def _copy_states(files: list[Path], folder: Path, rows: Any, layers: int) -> None:
    if len(files) != len(rows):
        raise UsageError("Every row must have its states.", f"{len(files)} files, {len(rows)} rows", "Extract first.")
    for index, (path, row) in enumerate(zip(files, rows, strict=True)):
        sample = _read(NEW, path)
        _check_ids(sample, row, path)
        _check_shapes(sample, path, layers)
        shutil.copyfile(path, NEW.path(folder, index))


def _read(form: SampleFiles, path: Path) -> dict[str, Any]:
    try:
        return form.read(path)
    except SampleError as error:
        raise UsageError("Every sample must be readable.", f"{path.name}: {error}", "Extract it again.") from error


def _check_ids(sample: dict[str, Any], row: dict[str, Any], path: Path) -> None:
    import torch

    if not torch.equal(sample["input_ids"], row["input_ids"]):
        raise UsageError(
            "States must be of the tokens of their row.", f"other token_ids in {path.name}", "Generate it again."
        )


def _check_shapes(sample: dict[str, Any], path: Path, layers: int) -> None:
    problem = Outline.of(sample).problem(layers)
    if problem:
        raise UsageError(
            f"Every sample must have {layers} layers with a state for each token.",
            f"{problem} in {path.name}",
            "Extract it again, or name the layers that were extracted.",
        )


def _pairs(files: list[str], rows: str | None) -> Iterator[dict[str, Any]]:
    """Ids and mask of each sample: of the old form's files, or of the new form's rows."""
    from datasets import load_from_disk

    for row in load_from_disk(rows).with_format("torch") if rows else (_read(OLD, Path(file)) for file in files):
        ids, mask = row["input_ids"], row["loss_mask"]
        yield {"input_ids": ids.tolist(), "loss_mask": mask.long().tolist(), "seq_len": len(ids)}


def _dataset(files: list[Path], rows: Path | None, cache: str) -> Any:
    from datasets import Dataset, Features, Sequence, Value

    ids = Sequence(Value("int64"))
    features = Features({"input_ids": ids, "loss_mask": ids, "seq_len": Value("int64")})
    sources = {"files": [str(path) for path in files], "rows": str(rows) if rows else None}
    # Row after row through a cache on the disk: the samples of a large run do not fit into memory.
    made = Dataset.from_generator(_pairs, features=features, cache_dir=cache, gen_kwargs=sources)
    made.set_format(type="torch")  # the trainer compares tensors (ArrowDataset)
    return made


def _count_tokens(rows: Any, path: Path) -> None:
    """The count that the new trainers take the draft's vocabulary from."""
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    save_token_frequency_distribution(rows, str(path))


def _import_one(source: Path, store: SampleStore, index: int, row: dict[str, Any]) -> int:
    path = NEW.path(source, index)
    if not path.is_file():
        raise UsageError("Every row must have its states.", f"no {path.name}", "Generate them first.")
    sample = _read(NEW, path)
    _check_ids(sample, row, path)
    _check_shapes(sample, path, len(store.manifest.layer_ids))
    store.write(index, {**sample, "loss_mask": row["loss_mask"].long()})  # 0.5 stores some masks as bool
    return len(sample["input_ids"])


def _manifest(source: Path, rows: Any, model: str | None, vllm_layer_ids: Sequence[int] | None) -> Manifest:
    own = _json(source / MANIFEST)
    if own:
        return Manifest(**{**own, "form": OLD.form})
    recorded = _json(source / RECORD)
    layer_ids = from_vllm_layer_ids(vllm_layer_ids) if vllm_layer_ids else recorded.get("layer_ids")
    if not model or not layer_ids:
        raise UsageError(
            "The verifier and the layers of the states must be known.",
            f"no {MANIFEST} in {source}",
            "Pass --model and --vllm-layer-ids (speculators' default for N layers: 2, N // 2, N - 3, N).",
        )
    names = ("vllm", "speculators", "torch", "transformers")
    installed = {name: versions.installed(name) for name in names}
    return Manifest(
        model=model,
        layer_ids=list(layer_ids),
        dtype="auto",
        dataset_fingerprint=fingerprint(rows),
        num_samples=len(rows),
        seed=0,
        seq_length=max(len(row["input_ids"]) for row in rows),
        versions={name: found.version for name, found in installed.items() if found},
    )


def _copy(source: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
