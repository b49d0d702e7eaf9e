"""One head, one engine, one process: reads a job, generates greedily, writes what was accepted.

Run as ``python -m speculators_compat.serve_check.engine JOB.json``. The process ends with its engine, which gives the
GPU's memory back; nothing of one head's run can leak into the next one's counters.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from ..store import write_json

__all__ = ["Job", "accepted", "main"]

#: Counters of vLLM (v1/spec_decode/metrics.py), as ``LLM.get_metrics()`` names them.
DRAFTS = "vllm:spec_decode_num_drafts"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"


@dataclasses.dataclass(frozen=True)
class Job:
    """What one process serves.

    Attributes:
        verifier: Folder or Hugging Face id.
        draft: Folder of the head; None serves the verifier alone.
        prompts: Token ids.
        result: File to write.
        speculative_tokens: Draft tokens a step.
        max_tokens: Longest answer.
        max_model_len: Longest prompt and answer together, with room for a step's draft tokens.
        multimodal: Whether the verifier is a multimodal wrapper.
        dtype: As vLLM takes it.
        tensor_parallel_size: GPUs that share the verifier.
        gpu_memory_utilization: Share of each GPU's memory; None: vLLM's default.
        trust_remote_code: Whether the verifier's own code may run.
        enforce_eager: Run without CUDA graphs and compilation.
        seed: Seed of the engine; greedy decoding draws nothing.
    """

    verifier: str
    draft: str | None
    prompts: list[list[int]]
    result: str
    speculative_tokens: int
    max_tokens: int
    max_model_len: int
    multimodal: bool
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    trust_remote_code: bool = False
    enforce_eager: bool = False
    seed: int = 0

    def write(self, path: Path) -> None:
        """Write the job for :func:`main`."""
        write_json(path, dataclasses.asdict(self))


def engine_arguments(job: Job, known: frozenset[str]) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``.

    Args:
        job: The job.
        known: Fields of this release's ``EngineArgs``.
    """
    arguments: dict[str, Any] = {
        "model": job.verifier,
        "dtype": job.dtype,
        "max_model_len": job.max_model_len,
        "tensor_parallel_size": job.tensor_parallel_size,
        "trust_remote_code": job.trust_remote_code,
        "enforce_eager": job.enforce_eager,
        "seed": job.seed,
        "disable_log_stats": False,  # get_metrics() has no counters otherwise
    }
    if job.gpu_memory_utilization is not None:
        arguments["gpu_memory_utilization"] = job.gpu_memory_utilization
    if job.draft is not None:
        arguments["speculative_config"] = {
            "method": "eagle3",
            "model": job.draft,
            "num_speculative_tokens": job.speculative_tokens,
        }
    if job.multimodal:
        # Prompts are token ids: no picture can come, so nothing is profiled or reserved for one.
        arguments["limit_mm_per_prompt"] = dict.fromkeys(("image", "video", "audio", "vision_chunk"), 0)
        arguments["skip_mm_profiling"] = True
    return {name: value for name, value in arguments.items() if name in known}


def accepted(metrics: Any) -> dict[str, Any]:
    """The counters of speculative decoding, over all engines.

    Args:
        metrics: What ``LLM.get_metrics()`` returned.

    Returns:
        ``drafts``, ``draft_tokens``, ``accepted_tokens`` and ``accepted_per_position``.
    """
    found: dict[str, int] = {DRAFTS: 0, DRAFT_TOKENS: 0, ACCEPTED: 0}
    per_position: list[int] = []
    for metric in metrics:
        if metric.name in found:
            found[metric.name] += int(metric.value)
        elif metric.name == PER_POSITION:
            values = [int(value) for value in metric.values]
            per_position += [0] * (len(values) - len(per_position))
            for position, value in enumerate(values):
                per_position[position] += value
    return {
        "drafts": found[DRAFTS],
        "draft_tokens": found[DRAFT_TOKENS],
        "accepted_tokens": found[ACCEPTED],
        "accepted_per_position": per_position,
    }


def run(job: Job) -> dict[str, Any]:
    """Start the engine, answer the prompts, count."""
    from vllm import LLM, SamplingParams
    from vllm.engine.arg_utils import EngineArgs

    known = frozenset(field.name for field in dataclasses.fields(EngineArgs))
    started = time.monotonic()
    llm = LLM(**engine_arguments(job, known))
    ready = time.monotonic()
    sampling = SamplingParams(temperature=0.0, max_tokens=job.max_tokens)
    answers = llm.generate([{"prompt_token_ids": ids} for ids in job.prompts], sampling, use_tqdm=False)
    return {
        **(accepted(llm.get_metrics()) if job.draft is not None else {}),
        "outputs": [list(answer.outputs[0].token_ids) for answer in answers],
        "seconds": {"start": round(ready - started, 1), "generate": round(time.monotonic() - ready, 2)},
    }


def main(path: str) -> None:
    """Run the job in ``path`` and write its result."""
    job = Job(**json.loads(Path(path).read_text(encoding="utf-8")))
    write_json(Path(job.result), run(job))


if __name__ == "__main__":
    main(sys.argv[1])
