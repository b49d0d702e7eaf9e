"""Compares the first samples that a server wrote with our own extraction, in this process.

Reads prepared rows (a data set of the datasets library with ``input_ids``) and ``hs_<i>.safetensors`` beside them
(``hidden_states`` [tokens, layers, hidden], ``token_ids``), as speculators 0.5 and later write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import activation
from ..drift import UsageError
from ..sample_files import SampleError, StateFiles
from .command import Verifier, read_verifier, server_layer_ids
from .diagnosis import NORMED, Report, Sample, diagnose

__all__ = ["TOLERANCES", "Settings", "as_dict", "as_text", "run_check"]

#: Relative L2 error of a row between two runs of one model, by the states' dtype: kernels and graphs may differ.
TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 8e-2}
FILES = StateFiles()
WAY_OUT = "Extract with the connector that launch names, without --kv-cache-dtype."
Extract = Callable[..., list[dict[int, Any]]]


@dataclass(frozen=True)
class Settings:
    """What to check.

    Attributes:
        model: Verifier, folder or Hugging Face id.
        data: Prepared folder.
        states: Folder of the ``hs_<i>.safetensors``; None: ``hidden_states`` in ``data``.
        layer_ids: As given to ``launch``; None for its default.
        samples: How many of the first samples.
        tolerance: Relative L2 error of a row; None: by the dtype of the states.
        tensor_parallel_size: GPUs that share the verifier here.
        gpu_memory_utilization: Share of each GPU's memory; None: upstream's default.
        trust_remote_code: Whether the verifier's own code may run.
    """

    model: str
    data: Path
    states: Path | None = None
    layer_ids: Sequence[int] | None = None
    samples: int = 4
    tolerance: float | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    trust_remote_code: bool = False

    @property
    def folder(self) -> Path:
        """Where the states are."""
        return self.states or self.data / FILES.folder


def run_check(settings: Settings, extract: Extract | None = None) -> Report:
    """Compare.

    Args:
        settings: What to check.
        extract: Computes the states of prompts by layer; our generator by default.

    Returns:
        The report; its ``findings`` are empty if the server's states are those of this process.

    Raises:
        UsageError: There are no rows or no states, or they are of another form.
    """
    activation.activate()  # datasets may need a drift to read its own rows
    verifier = read_verifier(settings.model)
    layer_ids = server_layer_ids(verifier.num_layers, settings.layer_ids)
    tokens = _tokens(settings)
    found, dtype = _read(settings.folder, tokens, layer_ids)
    tolerance = settings.tolerance or TOLERANCES[dtype]
    candidates = _candidates(layer_ids, verifier.num_layers)
    states = (extract or _extract)(settings, list(tokens.values()), candidates, dtype)
    norm = _final_norm(verifier) if extract is None else None
    expected = {
        index: Sample(tokens[index], _with_norm(by_layer, layer_ids[-1], norm))
        for index, by_layer in zip(tokens, states, strict=True)
    }
    return diagnose(found, expected, tolerance)


def _candidates(layer_ids: Sequence[int], num_layers: int) -> list[int]:
    """The layers, and their neighbours: what a wrong convention takes for them."""
    near = {layer + step for layer in layer_ids for step in (-1, 0, 1)}
    return sorted(layer for layer in near if 0 <= layer < num_layers)


def _tokens(settings: Settings) -> dict[int, list[int]]:
    """Tokens of the first samples, up to the last of them that has a file."""
    from datasets import load_from_disk

    if not (settings.data / "state.json").is_file():
        raise UsageError(
            "The prepared rows say which tokens belong to a file.",
            f"no state.json in {settings.data}",
            "Name the folder that prepare-data wrote, and the states' own with --hidden-states-path.",
        )
    rows = load_from_disk(str(settings.data))
    count = min(settings.samples, len(rows))
    there = [index for index in range(count) if _file(settings.folder, index).is_file()]
    if not there:
        raise UsageError(
            f"The first {count} samples are compared.",
            f"no hs_0.safetensors or another of them in {settings.folder}",
            "Name the states' folder with --hidden-states-path, or extract some first.",
        )
    return {index: [int(token) for token in rows[index]["input_ids"]] for index in range(there[-1] + 1)}


def _file(folder: Path, index: int) -> Path:
    return folder / FILES.name.format(index=index)


def _read(folder: Path, tokens: Mapping[int, Any], layer_ids: Sequence[int]) -> tuple[dict[int, Sample], str]:
    """What the server wrote, in float32, and the dtype that it wrote."""
    found = {}
    dtypes = set()
    for index in tokens:
        path = _file(folder, index)
        if not path.is_file():
            continue
        sample = _sample(path, layer_ids)
        states = sample["hidden_states"]
        dtypes.add(str(states[0].dtype).removeprefix("torch."))
        columns = {layer: state.float().numpy() for layer, state in zip(layer_ids, states, strict=True)}
        found[index] = Sample(sample["input_ids"].tolist(), columns)
    if len(dtypes) != 1 or not dtypes <= TOLERANCES.keys():
        raise UsageError(
            f"States are all of one of these types: {', '.join(TOLERANCES)}.", ", ".join(sorted(dtypes)), WAY_OUT
        )
    return found, dtypes.pop()


def _sample(path: Path, layer_ids: Sequence[int]) -> dict[str, Any]:
    """One file, with the layers that it should have."""
    required = f"A file holds token_ids and hidden_states [tokens, {len(layer_ids)} layers, hidden]."
    try:
        sample = FILES.read(path)
    except SampleError as error:
        raise UsageError(required, f"{path.name}: {error}", WAY_OUT) from error
    layers = len(sample["hidden_states"])
    if layers != len(layer_ids):
        raise UsageError(required, f"{layers} layers in {path.name}", "Give --layer-ids as they were given to launch.")
    return sample


def _extract(settings: Settings, prompts: list[list[int]], layer_ids: list[int], dtype: str) -> list[dict[int, Any]]:
    """Our own extraction."""
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    memory = settings.gpu_memory_utilization
    with VllmHiddenStatesGenerator(
        settings.model,
        layer_ids,
        max_model_len=max(map(len, prompts)) + 1,
        tensor_parallel_size=settings.tensor_parallel_size,
        dtype=dtype,
        trust_remote_code=settings.trust_remote_code,
        overlong="error",
        **({} if memory is None else {"gpu_memory_utilization": memory}),
    ) as generator:
        results = generator.generate(prompts)
    return [
        {layer: states.float().numpy() for layer, states in zip(layer_ids, result["hidden_states"], strict=True)}
        for result in results
    ]


def _final_norm(verifier: Verifier) -> Callable[[Any], Any] | None:
    """The verifier's final norm of a state [tokens, hidden]; None where it cannot be computed."""
    import numpy as np
    from speculators.utils.loading import load_model_layers

    from ..verifier import NORM, load_tensors, norm_offset, text_config

    try:
        config = text_config(verifier.name)
        weight = norm_offset(config) + load_tensors([NORM], verifier.name, load_model_layers)[NORM].float().numpy()
    except (OSError, UsageError):
        return None  # one fault less that can be named; the rows are then unlike any

    def norm(states: Any) -> Any:
        return states / np.sqrt((states**2).mean(axis=1, keepdims=True) + config.rms_norm_eps) * weight

    return norm


def _with_norm(by_layer: Mapping[int, Any], last: int, norm: Callable[[Any], Any] | None) -> dict[int, Any]:
    return dict(by_layer) if norm is None else {**by_layer, NORMED: norm(by_layer[last])}


def as_dict(report: Report) -> dict[str, Any]:
    """Plain data for JSON output."""
    return {
        "ok": not report.findings,
        "errors": {str(layer): error for layer, error in report.errors.items()},
        "findings": report.findings,
        "rows": report.rows,
        "noisy_rows": report.noisy_rows,
    }


def as_text(report: Report) -> str:
    """The report for a reader."""
    lines = [f"layer {layer}: relative error {error:.1e}" for layer, error in sorted(report.errors.items())]
    lines.append(f"{report.rows} rows compared, {report.noisy_rows} of them noisy")
    return "\n".join([*lines, *(report.findings or ["The states are those of this process."])])
