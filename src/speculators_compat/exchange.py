"""Extracted samples from the form of speculators 0.3 and 0.4 into that of 0.5 and later, and back.

The old form is one ``data_<i>.pt`` a sample. The new one is a data set of the datasets library (``input_ids``,
``loss_mask``, ``seq_len``) with ``hidden_states/hs_<i>.safetensors`` beside it (``hidden_states``, one tensor [tokens,
layers, hidden], and ``token_ids``), row i of the one with file i of the other (speculators ``train/data.py``,
``ArrowDataset``). Both hold the same states of the same layers, the last one before the final norm; only the layers'
names differ by one.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import activation, versions
from .drift import UsageError
from .layers import from_vllm_layer_ids, to_vllm_layer_ids
from .pipeline.prepare import fingerprint
from .store import DATA_CONFIG, MANIFEST, Manifest, SampleStore, atomic_file, write_json

__all__ = ["export", "import_"]

STATES = "hidden_states"
RECORD = "exchange.json"
FREQUENCIES = "token_freq.pt"
SAMPLE = re.compile(r"data_(\d+)\.pt")


def export(source: Path, target: Path) -> int:
    """Write a folder of ``data_<i>.pt`` in the new form.

    Args:
        source: A folder of this library's ``extract`` step, or of speculators' own script.
        target: Folder to make.

    Returns:
        Number of samples.

    Raises:
        UsageError: Samples are missing or unreadable, their layers are not known, or the target exists.
    """
    activation.activate()  # datasets may need a drift to read its own rows
    layer_ids = _layer_ids(source)
    files = _sample_files(source)
    with _new_folder(target) as folder:
        (folder / STATES).mkdir()
        with tempfile.TemporaryDirectory(dir=folder.parent) as cache:
            _write_states(files, folder / STATES, len(layer_ids))
            rows = _dataset(files, cache)
            rows.save_to_disk(str(folder))
        _count_tokens(rows, folder / FREQUENCIES)
        write_json(folder / RECORD, {"layer_ids": layer_ids, "vllm_layer_ids": to_vllm_layer_ids(layer_ids)})
        _copy(source, folder, (MANIFEST, DATA_CONFIG))
    return len(files)


def import_(source: Path, target: Path, model: str | None = None, vllm_layer_ids: Sequence[int] | None = None) -> int:
    """Write a folder of the new form as ``data_<i>.pt``.

    Args:
        source: A prepared folder with its ``hidden_states``.
        target: Folder to make.
        model: The verifier; needed where the folder does not say it (it was not made by :func:`export`).
        vllm_layer_ids: The layers of the states in vLLM's convention, the last one included; needed as ``model`` is.

    Returns:
        Number of samples.

    Raises:
        UsageError: States are missing, of other tokens than the rows, or of unknown layers; or the target exists.
    """
    from datasets import load_from_disk

    activation.activate()
    if not (source / "state.json").is_file():
        raise UsageError("The new form is a prepared data set.", f"no state.json in {source}", "Name its folder.")
    rows = load_from_disk(str(source))
    rows.set_format(type="torch", columns=["input_ids", "loss_mask"])
    manifest = _manifest(source, rows, model, vllm_layer_ids)
    with _new_folder(target) as folder:
        store = SampleStore(folder, manifest)
        with store.writing():
            lengths = {index: _import_one(source, store, index, row) for index, row in enumerate(rows)}
            store.write_lengths(lengths)
        _copy(source, folder, (DATA_CONFIG,))
    return len(rows)


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


def _sample_files(source: Path) -> list[Path]:
    """The files in the order of their numbers, without a gap: row i of the new form must be sample i."""
    found = {int(match[1]): path for path in source.iterdir() if (match := SAMPLE.fullmatch(path.name))}
    manifest = _json(source / MANIFEST)
    count = manifest.get("num_samples", 0) if manifest else max(found, default=-1) + 1
    missing = [index for index in range(count) if index not in found]
    if missing or not found:
        raise UsageError(
            "Every sample must be there.", f"{len(missing)} of {count} missing in {source}", "Extract them first."
        )
    return [found[index] for index in sorted(found)]


def _write_states(files: list[Path], folder: Path, num_layers: int) -> None:
    import torch
    from safetensors.torch import save

    for index, path in enumerate(files):
        sample = _load(path)
        layers = sample[STATES]
        if len(layers) != num_layers:
            raise UsageError(
                f"Every sample must have {num_layers} layers.", f"{len(layers)} in {path.name}", "Extract it again."
            )
        states = {STATES: torch.stack(list(layers), dim=1), "token_ids": sample["input_ids"].contiguous()}
        with atomic_file(folder / f"hs_{index}.safetensors") as file:
            file.write(save(states))


def _load(path: Path) -> dict[str, Any]:
    import torch

    try:
        sample: dict[str, Any] = torch.load(path, mmap=True, weights_only=True, map_location="cpu")
    except Exception as error:  # a damaged archive shows in many ways
        raise UsageError(
            "Every sample must be readable.", f"{path.name}: {type(error).__name__}", "Extract it again."
        ) from error
    return sample


def _rows(files: list[str]) -> Iterator[dict[str, Any]]:
    for file in files:
        sample = _load(Path(file))
        ids, mask = sample["input_ids"], sample["loss_mask"]
        yield {"input_ids": ids.tolist(), "loss_mask": mask.long().tolist(), "seq_len": len(ids)}


def _dataset(files: list[Path], cache: str) -> Any:
    from datasets import Dataset, Features, Sequence, Value

    ids = Sequence(Value("int64"))
    features = Features({"input_ids": ids, "loss_mask": ids, "seq_len": Value("int64")})
    # Row after row through a cache on the disk: the samples of a large run do not fit into memory.
    made = Dataset.from_generator(
        _rows, features=features, cache_dir=cache, gen_kwargs={"files": [str(path) for path in files]}
    )
    made.set_format(type="torch")  # the trainer compares tensors (ArrowDataset)
    return made


def _count_tokens(rows: Any, path: Path) -> None:
    """The count that the new trainers take the draft's vocabulary from."""
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    save_token_frequency_distribution(rows, str(path))


def _import_one(source: Path, store: SampleStore, index: int, row: dict[str, Any]) -> int:
    import torch
    from safetensors.torch import load_file

    path = source / STATES / f"hs_{index}.safetensors"
    if not path.is_file():
        raise UsageError("Every row must have its states.", f"no {path.name}", "Generate them first.")
    found = load_file(path)
    states, ids = found[STATES], found["token_ids"]
    if not torch.equal(ids, row["input_ids"]):
        raise UsageError(
            "States must be of the tokens of their row.", f"other token_ids in {path.name}", "Generate it again."
        )
    if states.shape[:2] != (len(ids), len(store.manifest.layer_ids)):
        raise UsageError(
            f"States must be [tokens, {len(store.manifest.layer_ids)} layers, hidden].",
            f"{tuple(states.shape)} for {len(ids)} tokens in {path.name}",
            "Name the layers that were generated.",
        )
    mask = row["loss_mask"].long()  # 0.5 stores some masks as bool
    store.write(index, {"input_ids": ids.long(), STATES: list(states.unbind(1)), "loss_mask": mask})
    return len(ids)


def _manifest(source: Path, rows: Any, model: str | None, vllm_layer_ids: Sequence[int] | None) -> Manifest:
    own = _json(source / MANIFEST)
    if own:
        return Manifest(**own)
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
