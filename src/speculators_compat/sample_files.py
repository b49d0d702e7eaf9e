"""The two forms of an extracted sample on the disk: one class each, with one interface.

Speculators 0.3 and 0.4 train on ``data_<i>.pt``, which holds everything of sample i. 0.5 and later train on prepared
rows with a file of states beside each row, ``hidden_states/hs_<i>.safetensors``
(https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/train/data.py, ``ArrowDataset``). Both hold the
states of the same layers in ascending order, the last one before the final norm: the trainers take the last of them for
the verifier's output.

In memory a sample is a mapping: ``input_ids`` int64 [tokens], ``hidden_states`` a list with one [tokens, hidden] per
layer, and ``loss_mask`` int64 [tokens], which only the old form holds.
"""

from __future__ import annotations

import json
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import xxhash

from . import versions
from .atomic import atomic_file
from .restored import REMOVED

__all__ = ["FORMS", "Outline", "PtFiles", "SampleError", "SampleFiles", "StateFiles", "form_of", "installed_form"]

#: What torch calls the types of states, and what safetensors does.
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
#: Its key in the metadata of a file of states. XXH3 costs a writer nothing: 28 GB/s on a core where CRC-32 runs at 1.7.
CHECKSUM = "xxh3_64"
BLOCK = 1 << 21  # states that are put side by side at once: they stay in the processor's cache until they are written


class SampleError(ValueError):
    """A file is not a sample of its form; the message says why."""


@dataclass(frozen=True)
class Outline:
    """A sample without the values of its states.

    Attributes:
        input_ids: Tensor [tokens].
        loss_mask: Tensor [tokens]; None where the form does not hold it.
        states: Shape and torch dtype of each layer's states.
    """

    input_ids: Any
    loss_mask: Any
    states: Sequence[tuple[tuple[int, ...], Any]]

    @classmethod
    def of(cls, sample: Mapping[str, Any]) -> Outline:
        """The outline of a sample in memory."""
        states = [(tuple(state.shape), state.dtype) for state in sample["hidden_states"]]
        return cls(sample["input_ids"], sample.get("loss_mask"), states)

    def problem(self, layers: int) -> str:
        """What is wrong with shapes and dtypes, or an empty string.

        Args:
            layers: Number of layers that the sample must have.
        """
        import torch

        ids, mask, states = self.input_ids, self.loss_mask, self.states
        mask = ids if mask is None else mask
        if ids.dtype != torch.int64 or mask.dtype != torch.int64:
            return f"ids and mask must be int64, they are {ids.dtype} and {mask.dtype}"
        if ids.dim() != 1 or ids.shape != mask.shape:
            return f"the mask covers {tuple(mask.shape)} of {tuple(ids.shape)} tokens"
        if len(states) != layers:
            return f"{len(states)} states for {layers} layers"
        if any(len(shape) != 2 or shape[0] != ids.shape[0] for shape, _ in states):
            return f"states {[shape for shape, _ in states]} for {ids.shape[0]} tokens"
        if len({(shape[1], dtype) for shape, dtype in states}) != 1:
            return "the layers' states differ in width or dtype"
        return ""


class SampleFiles(ABC):
    """One form: names, writing and reading of its files.

    Attributes:
        form: Its name, as a manifest records it.
        folder: Where the files are inside an extracted-data folder; empty: in the folder itself.
        name: Name of a file; ``{index}`` is the row of the prepared data.
        may_be_cut: Whether the trainer takes a sample that is shorter than its row.
        index_tensors: int64 values a token beside the states.
        overhead: Most bytes of a file that are neither, rounded up to the disk's blocks of 4 KiB.
    """

    form: ClassVar[str]
    folder: ClassVar[str]
    name: ClassVar[str]
    may_be_cut: ClassVar[bool]
    index_tensors: ClassVar[int]
    overhead: ClassVar[int]

    def path(self, store: Path, index: int) -> Path:
        """File of sample ``index`` in an extracted-data folder."""
        return store / self.folder / self.name.format(index=index)

    def index(self, name: str) -> int | None:
        """Number of the sample whose file has this name; None if it is no sample's name."""
        found = re.fullmatch(re.escape(self.name).replace(re.escape("{index}"), r"(\d+)"), name)
        return int(found[1]) if found else None

    def found(self, store: Path) -> dict[int, Path]:
        """Files of all samples of an extracted-data folder, by number, in the order of their numbers."""
        folder = store / self.folder
        numbered = {self.index(path.name): path for path in folder.iterdir()} if folder.is_dir() else {}
        return {index: numbered[index] for index in sorted(index for index in numbered if index is not None)}

    @abstractmethod
    def write(self, path: Path, sample: Mapping[str, Any]) -> None:
        """Write one sample; the file is complete or absent.

        Args:
            path: Its file, in a folder that exists.
            sample: In memory; its outline has no problem.

        Raises:
            ValueError: The form has no place for the states' dtype; nothing is written.
            OSError: Writing failed; nothing is left behind.
        """

    @abstractmethod
    def read(self, path: Path) -> dict[str, Any]:
        """A sample; its states are read from the disk where and when they are used.

        Raises:
            SampleError: The file is missing, unreadable, or of another content.
        """

    @abstractmethod
    def outline(self, path: Path) -> Outline:
        """Ids and shapes of a sample, without reading its states.

        Raises:
            SampleError: As :meth:`read`.
        """

    @abstractmethod
    def damage(self, path: Path) -> str:
        """What is wrong with the bytes of a file, read in full, or an empty string."""

    @abstractmethod
    def describe(self, layers: int, hidden: int) -> dict[str, Any] | None:
        """``format`` of ``data_config.json`` for these files; None where speculators' own description is right."""


class PtFiles(SampleFiles):
    """``data_<i>.pt`` of speculators 0.3 and 0.4: ids, mask, and a list of states, by ``torch.save``."""

    form = "pt"
    folder = ""
    name = "data_{index}.pt"
    may_be_cut = True
    index_tensors = 2
    overhead = 8192  # torch.save's archive: about 3 kB for six tensors

    def write(self, path: Path, sample: Mapping[str, Any]) -> None:
        """Write ids, mask and states, each with a storage of its own."""
        import torch

        content = {
            "input_ids": _owned(sample["input_ids"]),
            "hidden_states": [_owned(state) for state in sample["hidden_states"]],
            "loss_mask": _owned(sample["loss_mask"]),
        }
        with atomic_file(path) as file:
            torch.save(content, file)

    def read(self, path: Path) -> dict[str, Any]:
        """Ids, mask and states; the states are mapped from the disk."""
        import torch

        try:
            content = torch.load(path, mmap=True, weights_only=True, map_location="cpu")
            sample = {name: content[name] for name in ("input_ids", "hidden_states", "loss_mask")}
            if not all(map(torch.is_tensor, [sample["input_ids"], sample["loss_mask"], *sample["hidden_states"]])):
                raise TypeError("not all are tensors")
            return sample
        except Exception as error:  # a damaged archive shows in many ways
            raise SampleError(f"unreadable ({type(error).__name__})") from error

    def outline(self, path: Path) -> Outline:
        """Ids, mask and shapes."""
        return Outline.of(self.read(path))

    def damage(self, path: Path) -> str:
        """By the archive's own checksums."""
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
        except (OSError, zipfile.BadZipFile) as error:
            return f"unreadable ({error})"
        return f"damaged (checksum of {damaged})" if damaged else ""

    def describe(self, layers: int, hidden: int) -> dict[str, Any] | None:
        """Speculators' own description is of this form."""
        return None


class StateFiles(SampleFiles):
    """``hs_<i>.safetensors`` of speculators 0.5 and later: ``hidden_states`` [tokens, layers, hidden], ``token_ids``.

    The loss mask stays in the prepared rows. The trainers compare ``token_ids`` with the row and leave a sample out
    that differs, so a sample is as long as its row. Files of this library carry the XXH3 hash of their tensors' bytes;
    those of speculators' own client carry none, and only their header can be checked.
    """

    form = "safetensors"
    folder = "hidden_states"
    name = "hs_{index}.safetensors"
    may_be_cut = False
    index_tensors = 1
    overhead = 4096  # the header: about 250 B

    def write(self, path: Path, sample: Mapping[str, Any]) -> None:
        """Write ids and states side by side, without a second copy of the sample in memory."""
        ids = sample["input_ids"].detach().cpu()
        states = [state.detach().cpu() for state in sample["hidden_states"]]
        header, place = _header(ids, states)
        checksum = xxhash.xxh3_64()
        with atomic_file(path) as file:
            file.write(header)
            for block in _blocks(ids, states):
                file.write(block)
                checksum.update(block)
            file.seek(place)
            file.write(checksum.hexdigest().encode())

    def read(self, path: Path) -> dict[str, Any]:
        """Ids and states, which are views of one tensor that is mapped from the disk."""
        with _opened(path) as file:
            states, ids = file.get_tensor("hidden_states"), file.get_tensor("token_ids")
        return {"input_ids": ids, "hidden_states": list(states.unbind(1))}

    def outline(self, path: Path) -> Outline:
        """Ids and shapes, from the header."""
        import torch

        names = {theirs: getattr(torch, ours) for ours, theirs in DTYPES.items()}
        with _opened(path) as file:
            states = file.get_slice("hidden_states")
            tokens, layers, hidden = states.get_shape()
            return Outline(file.get_tensor("token_ids"), None, [((tokens, hidden), names[states.get_dtype()])] * layers)

    def damage(self, path: Path) -> str:
        """By the header and the checksum, where there is one."""
        try:
            with _opened(path) as file:
                recorded = (file.metadata() or {}).get(CHECKSUM)
            intact = recorded is None or recorded == _checksum(path)
        except (OSError, SampleError) as error:
            return str(error)
        return "" if intact else "damaged (its checksum)"

    def describe(self, layers: int, hidden: int) -> dict[str, Any] | None:
        """Name pattern and tensors."""
        states = f"States of {layers} layers, ascending, the last one before the final norm"
        return {
            "file_pattern": f"{self.folder}/{self.name.format(index='{idx}')}",
            "schema": {
                "hidden_states": {"shape": f"[seq_len, {layers}, {hidden}]", "description": states},
                "token_ids": {"dtype": "torch.long", "shape": "[seq_len]", "description": "Tokenized input sequence"},
            },
        }


#: The two forms by name.
FORMS: dict[str, SampleFiles] = {files.form: files for files in (PtFiles(), StateFiles())}


def form_of(speculators_version: str | None) -> str:
    """The form that a release of speculators trains on.

    Args:
        speculators_version: Its version; None if it is not installed.

    Returns:
        ``safetensors`` for 0.5 and later, else ``pt``.
    """
    newer = speculators_version is not None and versions.matches(speculators_version, REMOVED)
    return StateFiles.form if newer else PtFiles.form


def installed_form() -> str:
    """The form that the installed speculators trains on."""
    found = versions.installed("speculators")
    return form_of(found.version if found else None)


def _owned(tensor: Any) -> Any:
    """The tensor with a storage of its own: torch.save writes a view's whole storage."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        return tensor.clone()
    return tensor


def _header(ids: Any, states: Sequence[Any]) -> tuple[bytes, int]:
    """Header of a file and the place of its checksum, hexadecimal digits that are not known yet.

    The format: https://huggingface.co/docs/safetensors/index#format. Ids come first, because they are aligned there
    whatever the size of the states.
    """
    tokens, hidden = states[0].shape
    dtype = str(states[0].dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ValueError(f"states must be one of {', '.join(DTYPES)}, they are {dtype}")
    unknown = "0" * 16
    ids_bytes = tokens * ids.element_size()
    end = ids_bytes + tokens * len(states) * hidden * states[0].element_size()
    content = {
        "__metadata__": {CHECKSUM: unknown},
        "token_ids": {"dtype": "I64", "shape": [tokens], "data_offsets": [0, ids_bytes]},
        "hidden_states": {
            "dtype": DTYPES[dtype],
            "shape": [tokens, len(states), hidden],
            "data_offsets": [ids_bytes, end],
        },
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, 8 + text.index(unknown.encode())


def _blocks(ids: Any, states: Sequence[Any]) -> Iterator[Any]:
    """The bytes of ids, then of states side by side, [tokens, layers, hidden], in blocks that share one buffer.

    The states lie in one tensor a layer. Putting a whole sample side by side takes its memory once more and, measured,
    twice the time of this.
    """
    import torch

    yield ids.contiguous().view(torch.uint8).numpy()
    tokens, hidden = states[0].shape
    rows = max(1, min(tokens, BLOCK // (len(states) * hidden * states[0].element_size())))
    buffer = torch.empty(rows, len(states), hidden, dtype=states[0].dtype)
    for first in range(0, tokens, rows):
        block = buffer[: min(rows, tokens - first)]
        torch.stack([state[first : first + rows] for state in states], dim=1, out=block)
        yield block.view(-1).view(torch.uint8).numpy()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of states whose header says what it must; opening checks the header against the file's size."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
            if shapes.keys() != {"hidden_states", "token_ids"} or len(shapes["hidden_states"]) != 3:
                raise SampleError(f"it holds {shapes}, not token_ids and hidden_states [tokens, layers, hidden]")
            dtype = file.get_slice("hidden_states").get_dtype()
            if dtype not in DTYPES.values():
                raise SampleError(f"its states are {dtype}, none of {', '.join(DTYPES.values())}")
            yield file
    except SampleError:
        raise
    except Exception as error:  # SafetensorError, and what the system says
        raise SampleError(f"unreadable ({error})") from error


def _checksum(path: Path) -> str:
    """Hash of everything after the header."""
    checksum = xxhash.xxh3_64()
    with path.open("rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        while block := file.read(BLOCK):
            checksum.update(block)
    return str(checksum.hexdigest())
