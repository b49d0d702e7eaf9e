"""Extraction beside plain prefill, in one run: how fast, how exact, how much memory.

    PYTHONPATH=src python benchmarks/extraction.py --out DIR [--shape llama-1b|kimi|small] [--only verify|speed|memory]

``speed``: one model with random weights, prompts of one length (for some paths also of lengths as in chats), medians
of ``--repeats``: plain vLLM prefill; vLLM's own ``extract_hidden_states`` to a RAM disk, where the release has it and
the model allows it; and the generator: the old way (states pickled into the reply queue), ``generate()``, ``stream()``,
samples written to a RAM disk and to a disk. ``verify``: states of small models, unequal and chunked prompts, against
transformers in float32. ``memory``: peak of resident memory for one data set and for ten times as much.

Writes ``extraction.json`` to DIR. Each engine runs in a process of its own. On a GPU ``--runner 0 1`` runs everything
under both model runners of vLLM.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import speculators_compat  # noqa: F401 - before speculators

RAM_DISK = Path("/dev/shm")
#: Sizes of the models that are timed.
SHAPES: dict[str, dict[str, Any]] = {
    "llama-1b": {
        "kind": "llama", "layers": [2, 8, 13, 15], "num_hidden_layers": 16, "hidden_size": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
        "vocab_size": 65536,
    },
    "kimi": {
        "kind": "kimi_k25", "layers": [1, 3, 5, 7], "num_hidden_layers": 8, "hidden_size": 2048,
        "num_attention_heads": 16, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 32, "experts_per_token": 4,
        "intermediate_size": 8192, "moe_intermediate_size": 1024, "vocab_size": 32768,
    },
    "small": {
        "kind": "llama", "layers": [1, 4, 6, 7], "num_hidden_layers": 8, "hidden_size": 512,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048,
        "vocab_size": 4096,
    },
}  # fmt: skip
#: Models whose states are compared; latent attention's GPU kernels take the real model's head sizes only.
CHECKED: dict[str, dict[str, Any]] = {
    "llama": {
        "kind": "llama", "layers": [3, 0, 5, 1], "num_hidden_layers": 6, "hidden_size": 256, "head_dim": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1024,
    },
    "kimi": {
        "kind": "kimi_k25", "layers": [3, 0, 2, 1], "num_hidden_layers": 4, "hidden_size": 512,
        "num_attention_heads": 16, "q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 16, "experts_per_token": 4,
        "intermediate_size": 1024, "moe_intermediate_size": 256, "vocab_size": 1024,
    },
}  # fmt: skip
LENGTHS = (1, 700, 15, 17, 2, 130, 33, 16, 257, 1, 64, 511, 128, 300, 5)
MAX_LEN = 2048


def build(folder: Path, shape: dict[str, Any], dtype: str) -> Path:
    """Write a model with random weights."""
    from speculators_compat.testing import make_model

    sizes = {name: value for name, value in shape.items() if name not in ("kind", "layers")}
    return make_model(shape["kind"], folder, dtype=dtype, **sizes)


def prompts_of(job: dict[str, Any], count: int, chat: bool = False) -> list[list[int]]:
    """Random prompts: of one length, or log-normal as conversations are (median 500, 16 to 2047 tokens)."""
    source = random.Random(7)
    lengths = [job["length"]] * count
    if chat:
        lengths = [max(16, min(MAX_LEN - 1, round(source.lognormvariate(math.log(500), 0.9)))) for _ in range(count)]
    return [[source.randrange(job["vocab"]) for _ in range(length)] for length in lengths]


def timed(job: dict[str, Any], prompts: list[list[int]], run: Callable[[list[list[int]]], Any]) -> dict[str, Any]:
    """Tokens a second of ``run``; the first of the repeats is dropped, it touches memory for the first time."""
    tokens, rates, told = sum(map(len, prompts)), [], {}
    for _ in range(job["repeats"] + 1):
        begun = time.monotonic()
        told = run(prompts) or {}
        seconds = told.pop("seconds", time.monotonic() - begun)
        rates.append(round(tokens / seconds))
    return {"tokens": tokens, "rates": rates[1:], "median": statistics.median(rates[1:]), **told}


def peak_mb() -> int:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) // 1000


@contextlib.contextmanager
def scratch(where: Path) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="extraction-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# --- plain vLLM ------------------------------------------------------------------------------------------------------


def plain_job(job: dict[str, Any]) -> dict[str, Any]:
    """Plain prefill of one sampled token; with ``job['native']`` vLLM's own extraction."""
    from vllm import LLM, SamplingParams

    options: dict[str, Any] = {
        "dtype": job["dtype"], "trust_remote_code": True, "enforce_eager": True, "enable_prefix_caching": False,
        "max_model_len": MAX_LEN, "max_num_batched_tokens": job["budget"], "gpu_memory_utilization": job["memory"],
    }  # fmt: skip
    if job["shape"]["kind"] == "kimi_k25":
        options["limit_mm_per_prompt"] = dict.fromkeys(("image", "video", "vision_chunk"), 0)
        options["skip_mm_profiling"] = True
    with scratch(RAM_DISK) as folder:
        if job["native"]:
            config = {"eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in job["shape"]["layers"]]}
            options["speculative_config"] = {
                "method": "extract_hidden_states", "num_speculative_tokens": 1,
                "draft_model_config": {"hf_config": config},
            }  # fmt: skip
            options["kv_transfer_config"] = {
                "kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer",
                "kv_connector_extra_config": {"shared_storage_path": str(folder)},
            }  # fmt: skip
        llm = LLM(model=job["model"], **options)
        sampling = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)

        def run(prompts: list[list[int]]) -> dict[str, Any]:
            begun = time.monotonic()
            llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
            returned = time.monotonic() - begun
            if job["native"]:
                written = wait_for(folder) - begun
                shutil.rmtree(folder)
                folder.mkdir()
                return {"seconds": written, "seconds_until_returned": returned}
            return {"seconds": returned}

        name = "native extract_hidden_states to a RAM disk" if job["native"] else "plain prefill"
        found = {name: timed(job, prompts_of(job, job["count"]), run)}
        if not job["native"]:
            found["plain prefill, chat lengths"] = timed(job, prompts_of(job, job["count"], chat=True), run)
        return found


def wait_for(folder: Path) -> float:
    """Wait until the connector has written every file; returns when."""
    import fcntl

    for lock in folder.rglob("*.lock"):
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    return time.monotonic()


# --- the generator ---------------------------------------------------------------------------------------------------


def generator_of(job: dict[str, Any], **options: Any) -> Any:
    """The generator under the shim."""
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    settings = {
        "max_model_len": MAX_LEN, "max_num_batched_tokens": job["budget"], "dtype": job["dtype"],
        "gpu_memory_utilization": job["memory"], **options,
    }  # fmt: skip
    return VllmHiddenStatesGenerator(job["model"], job["shape"]["layers"], **settings)


def generator_job(job: dict[str, Any]) -> dict[str, Any]:
    """Every path of the generator, one after the other."""
    same, chat = prompts_of(job, job["count"]), prompts_of(job, job["count"], chat=True)
    found: dict[str, Any] = {"runner": "", "paths": {}}
    with generator_of(job) as generator:
        found["runner"] = runner_of(generator)
        found["lent_slots"] = generator._compat_ring.layout.slots
        few = {**job, "repeats": 1}
        runs = {
            "old way: reply queue, 8 prompts a call": lambda p: old_way(generator, p),
            "generate(), 64 prompts a call": lambda p: generate(generator, p, 64),
            "stream()": lambda p: stream(generator, p),
            "stream(copy=True)": lambda p: stream(generator, p, copy=True),
            "stream(), every result kept by the caller": lambda p: stream(generator, p, keep=True),
            "extract to a RAM disk": lambda p: written(generator, p, RAM_DISK, job["threads"]),
            "extract to the disk": lambda p: written(generator, p, Path(tempfile.gettempdir()), job["threads"]),
        }
        for name, run in runs.items():
            if job["paths"] and not any(part in name for part in job["paths"]):
                continue
            slow = name.startswith("old way")
            found["paths"][name] = timed(few if slow else job, same[:64] if slow else same, run)
            print(name, found["paths"][name], flush=True)
            if name in ("stream()", "extract to a RAM disk"):
                found["paths"][f"{name}, chat lengths"] = timed(job, chat, run)
                print(name, found["paths"][f"{name}, chat lengths"], flush=True)
        generator.executor.collective_rpc(watch)
        stream(generator, same)
        found["worker_ms"] = generator.executor.collective_rpc(clocks)[0]
    return found


def runner_of(generator: Any) -> str:
    """Module of the worker's model runner."""
    return str(generator.executor.collective_rpc(lambda worker: type(worker.model_runner).__module__)[0])


def watch(worker: Any) -> None:
    """Put clocks on the worker that captures: its own time in each launch, and the device's in each step."""
    import torch

    launch, clock, cuda = worker._launch_step, time.perf_counter, torch.cuda.is_available()
    worker._clocks = []

    def event() -> Any:
        if not cuda:
            return None
        made = torch.cuda.Event(enable_timing=True)
        made.record()
        return made

    def watched(*args: Any) -> Any:
        begun = clock()
        worker._compat_inputs.wait()
        ready = clock()
        reply = launch(*args)
        worker._clocks.append((begun, ready, clock(), event()))
        return reply

    worker._launch_step = watched


def clocks(worker: Any) -> dict[str, float]:
    """Medians in milliseconds of what :func:`watch` saw."""
    import torch

    seen, worker._clocks = worker._clocks, []
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    pairs = list(itertools.pairwise(seen))[2:]

    def middle(values: Any) -> float:
        return round(statistics.median(values), 2)

    found = {
        "from launch to launch": middle(1000 * (b[0] - a[0]) for a, b in pairs),
        "waiting for the inputs of the step before": middle(1000 * (b[1] - b[0]) for _, b in pairs),
        "launching": middle(1000 * (b[2] - b[1]) for _, b in pairs),
    }
    if torch.cuda.is_available():
        found["device, from end to end of steps"] = middle(a[3].elapsed_time(b[3]) for a, b in pairs)
    return found


def generate(generator: Any, prompts: list[list[int]], size: int) -> None:
    """``generate()`` in calls of ``size`` prompts; each call's results are dropped before the next."""
    for start in range(0, len(prompts), size):
        results = generator.generate(prompts[start : start + size])
        assert len(results) == len(prompts[start : start + size])
        del results


def stream(generator: Any, prompts: list[list[int]], keep: bool = False, **options: Any) -> dict[str, Any]:
    """``stream()``, results dropped or kept."""
    begun, kept = time.monotonic(), []
    with generator.stream(prompts, **options) as results:
        for result in results:
            if keep:
                kept.append(result)
            del result
    wall = time.monotonic() - begun
    return {"seconds": wall, "shares": {name: round(s / wall, 3) for name, s in results.seconds.items()}}


def written(generator: Any, prompts: list[list[int]], where: Path, threads: int) -> dict[str, Any]:
    """Samples as the pipeline's extract step writes them."""
    import torch

    from speculators_compat.pipeline.writing import Writers, shares
    from speculators_compat.store import Manifest, SampleStore

    with scratch(where) as folder:
        manifest = Manifest("m", list(generator.layer_ids), "auto", "0", len(prompts), 0, MAX_LEN, {})
        store = SampleStore(folder / "data", manifest)

        def write(result: dict[str, Any]) -> int:
            sample = {**result, "loss_mask": torch.ones_like(result["input_ids"])}
            return store.write(result["index"], sample)

        with store.writing(), Writers(threads) as writers:
            begun, size = time.monotonic(), 0
            with generator.stream(iter(prompts), window=64, ordered=False) as results:
                for result in results:
                    size += sum(writers.submit(write, result))
                    del result
            size += sum(writers.finish())
            wall = time.monotonic() - begun
        return {"seconds": wall, "bytes": size, "shares": shares(wall, results.seconds, writers.waited_s)}


def old_way(generator: Any, prompts: list[list[int]]) -> None:
    """States of every step pickled into the executor's reply queue, one step at a time."""
    from speculators_compat.capture.generator import _request, upstream
    from speculators_compat.capture.ledger import Ledger, Step
    from speculators_compat.capture.loop import _starts
    from speculators_compat.capture.prompts import Prompt

    scheduler, executor = generator.scheduler, generator.executor
    for start in range(0, len(prompts), 8):
        ledger = Ledger(len(generator.layer_ids))
        executor.collective_rpc("_reset_capture")
        generator._request_counter += 1
        for index, ids in enumerate(prompts[start : start + 8]):
            name = f"old-{generator._request_counter}-{index}"
            ledger.add(name, Prompt(index, ids, 0))
            scheduler.add_request(_request(generator, name, ids))
        while ledger.unfinished:
            scheduled = scheduler.schedule()
            output = executor.execute_model(scheduled)
            replies = executor.collective_rpc("_take_captured_states", args=(scheduled.total_num_scheduled_tokens,))
            step = Step(list(output.req_ids), dict(scheduled.num_scheduled_tokens), _starts(scheduled))
            finished = ledger.place(step, next(reply for reply in replies if reply is not None))
            scheduler.finish_requests(finished, upstream().RequestStatus.FINISHED_ABORTED)
        executor.execute_model(scheduler.schedule())


def verify_job(job: dict[str, Any]) -> dict[str, Any]:
    """States of unequal, chunked prompts through generate() and stream() against transformers in float32."""
    from speculators_compat.testing import random_prompts, reference_hidden_states, relative_error

    layers = job["shape"]["layers"]
    prompts = random_prompts(job["vocab"], LENGTHS)
    reference = reference_hidden_states(job["model"], prompts, layers)
    found: dict[str, Any] = {"lengths": LENGTHS, "tokens_a_step": job["budget"], "layers": layers, "worst_prompt": {}}
    with generator_of(job) as generator:
        found["runner"] = runner_of(generator)
        for name, results in (
            ("generate()", generator.generate(prompts)),
            ("stream()", list(generator.stream(prompts * 3))[: len(prompts)]),
            ("stream(ordered=False), window 4", unordered(generator, prompts)),
        ):
            for prompt, result in zip(prompts, results, strict=True):
                assert result["input_ids"].tolist() == prompt
            found["worst_prompt"][name] = [
                round(
                    max(relative_error(r["hidden_states"][k], e[k]) for r, e in zip(results, reference, strict=True)), 6
                )
                for k in range(len(layers))
            ]
    return found


def unordered(generator: Any, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Results of an unordered stream, put in order."""
    found = {result["index"]: result for result in generator.stream(prompts, ordered=False, window=4)}
    return [found[index] for index in range(len(prompts))]


def memory_job(job: dict[str, Any]) -> dict[str, Any]:
    """Peak resident memory of this process while a data set is streamed."""
    with generator_of(job) as generator:
        stream(generator, prompts_of(job, 8))
        before = peak_mb()
        wall = stream(generator, prompts_of(job, job["count"], chat=True))["seconds"]
        return {"prompts": job["count"], "peak_mb": peak_mb(), "peak_mb_at_start": before, "seconds": round(wall, 1)}


def writers_job(job: dict[str, Any]) -> dict[str, Any]:
    """Rate at which threads write samples to a RAM disk, the states being there already."""
    import torch

    from speculators_compat.store import Manifest, SampleStore

    states = [torch.randn(job["length"], job["shape"]["hidden_size"]).bfloat16() for _ in job["shape"]["layers"]]
    ids = torch.zeros(job["length"], dtype=torch.int64)
    found = {}
    for threads in (1, 2, 4, 8, 12):
        with scratch(RAM_DISK) as folder:
            manifest = Manifest("m", job["shape"]["layers"], "auto", "0", 256, 0, MAX_LEN, {})
            store = SampleStore(folder / "data", manifest)
            sample = {"input_ids": ids, "loss_mask": ids, "hidden_states": states}
            write = partial(store.write, sample=sample)
            with store.writing(), ThreadPoolExecutor(threads) as pool:
                begun = time.monotonic()
                size = sum(pool.map(write, range(128)))
                found[f"{threads} threads, GB/s"] = round(size / (time.monotonic() - begun) / 1e9, 2)
    return found


JOBS = {
    "plain": plain_job,
    "generator": generator_job,
    "verify": verify_job,
    "memory": memory_job,
    "writers": writers_job,
}


def run_job(kind: str, job: dict[str, Any], runner: str | None = None) -> dict[str, Any]:
    """Run a job in a process of its own."""
    env = dict(os.environ)
    if runner is not None:
        env["VLLM_USE_V2_MODEL_RUNNER"] = runner
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--job", json.dumps({**job, "job": kind, "result": str(result)})]
        begun = time.monotonic()
        done = subprocess.run(command, env=env, check=False, timeout=job["limit_s"])
        found: dict[str, Any] = {"failed": done.returncode}
        if done.returncode == 0 and result.exists():
            found = json.loads(result.read_text(encoding="utf-8"))
        found["process_seconds"] = round(time.monotonic() - begun, 1)
        return found


def measure(options: argparse.Namespace, models: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run what was asked for; yields each result as it is there."""
    runners = options.runner or [None]
    base = {
        "dtype": options.dtype, "memory": options.memory, "repeats": options.repeats, "length": options.length,
        "count": options.count, "threads": options.threads, "paths": options.paths, "native": False,
        "limit_s": options.limit_s, "budget": options.budget,
    }  # fmt: skip
    if "verify" in options.only:
        for name in options.checked:
            shape = CHECKED[name]
            model = build(models / f"checked-{name}", shape, options.dtype)
            job = {**base, "shape": shape, "model": str(model), "vocab": shape["vocab_size"] - 256, "budget": 256}
            for runner in runners:
                yield f"verify {name}, runner {runner}", run_job("verify", job, runner)
    shape = SHAPES[options.shape]
    if not {"speed", "memory", "writers"} & set(options.only):
        return
    begun = time.monotonic()
    model = build(models / options.shape, shape, options.dtype)
    print(f"{options.shape} made in {time.monotonic() - begun:.0f} s", flush=True)
    job = {**base, "shape": shape, "model": str(model), "vocab": shape["vocab_size"] - 256}
    if "writers" in options.only:
        yield "writers", run_job("writers", job)
    if "speed" in options.only:
        for runner in runners:
            yield f"plain, runner {runner}", run_job("plain", job, runner)
            yield f"generator, runner {runner}", run_job("generator", job, runner)
        if options.native:
            yield "native", run_job("plain", {**job, "native": True})
    if "memory" in options.only:
        for count in (options.count, 10 * options.count):
            yield f"memory, {count} prompts", run_job("memory", {**job, "count": count}, runners[0])


def facts() -> dict[str, Any]:
    """Machine and versions."""
    import torch
    import vllm

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "cores": os.cpu_count(), "torch": torch.__version__, "vllm": vllm.__version__}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/extraction"))
    parser.add_argument("--only", nargs="*", default=["verify", "speed"])
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--checked", nargs="*", default=list(CHECKED))
    parser.add_argument("--runner", nargs="*", help="VLLM_USE_V2_MODEL_RUNNER: 0, 1 or both; default: vLLM's choice")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory", type=float, default=0.5, help="gpu_memory_utilization")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--count", type=int, default=512, help="prompts")
    parser.add_argument("--budget", type=int, default=8192, help="tokens of a step")
    parser.add_argument("--threads", type=int, default=8, help="writers")
    parser.add_argument("--paths", nargs="*", default=[], help="parts of the names of the generator's paths")
    parser.add_argument("--native", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--limit-s", type=int, default=580)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        Path(job["result"]).write_text(json.dumps(JOBS[job["job"]](job)), encoding="utf-8")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"shape": options.shape, "dtype": options.dtype, "count": options.count}
    content |= {"length": options.length, "budget": options.budget, "facts": facts(), "results": {}}
    code = 0
    with scratch(Path(tempfile.gettempdir())) as models:
        for name, found in measure(options, models):
            content["results"][name] = found
            code = code or int("failed" in found)
            print(name, json.dumps(found), flush=True)
            (options.out / "extraction.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
