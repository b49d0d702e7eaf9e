"""Extraction beside plain prefill, in one run: how fast, how exact, how much memory.

    PYTHONPATH=src python benchmarks/extraction.py --out DIR [--shape llama-1b|kimi|small] [--only verify|speed|memory]

``speed``: one model with random weights, prompts of one length (for some paths also of lengths as in chats), medians
of ``--repeats``: plain vLLM prefill; vLLM's own ``extract_hidden_states`` to a RAM disk, where the release has it and
the model allows it; and the generator: the old way (states pickled into the reply queue), ``generate()``, ``stream()``,
samples written to a RAM disk and to a disk. ``verify``: states of small models, unequal and chunked prompts, against
transformers in float32. ``memory``: peak of resident memory for one data set and for ten times as much.

Writes ``extraction.json`` to DIR after each engine, and ``extraction.svg``. Each engine runs in a process of its own
that is ended at its limit; what it had measured by then stays. On a GPU ``--runner 0 1`` runs everything under both
model runners of vLLM.
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
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
#: What --only takes.
KINDS = ("verify", "speed", "memory", "writers")
LENGTHS = (1, 700, 15, 17, 2, 130, 33, 16, 257, 1, 64, 511, 128, 300, 5)
MAX_LEN = 2048


def build(folder: Path, shape: dict[str, Any], dtype: str) -> Path:
    """Write a model with random weights."""
    from speculators_compat.testing import make_model

    sizes = {name: value for name, value in shape.items() if name not in ("kind", "layers")}
    return make_model(shape["kind"], folder, dtype=dtype, **sizes)


class Report:
    """What a process has found, saved after each finding.

    Args:
        path: JSON file.
    """

    def __init__(self, path: str) -> None:
        self._path, self.found = Path(path), dict[str, Any]()

    def add(self, name: str, value: Any) -> None:
        """Keep a finding."""
        self.found[name] = value
        print(name, value, flush=True)
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.found), encoding="utf-8")
        unfinished.replace(self._path)

    def measure(self, name: str, run: Callable[[], Any]) -> None:
        """Keep what ``run`` returns, or how it failed."""
        try:
            self.add(name, run())
        except Exception as error:
            traceback.print_exc()
            self.add(name, {"failed": f"{type(error).__name__}: {str(error)[:500]}"})


def lazily(job: dict[str, Any], count: int, chat: bool = False) -> Iterator[list[int]]:
    """Random prompts: of one length, or log-normal as conversations are (median 500, 16 to 2047 tokens)."""
    source = random.Random(7)
    for _ in range(count):
        length = job["length"]
        if chat:
            length = max(16, min(MAX_LEN - 1, round(source.lognormvariate(math.log(500), 0.9))))
        yield source.choices(range(job["vocab"]), k=length)


def prompts_of(job: dict[str, Any], count: int, chat: bool = False) -> list[list[int]]:
    """The same, made before the clock starts."""
    return list(lazily(job, count, chat))


def timed(
    job: dict[str, Any], prompts: list[list[int]], run: Callable[[list[list[int]]], Any], clock: Callable[[], float]
) -> dict[str, Any]:
    """Tokens a second of ``run``; the first of the repeats is dropped, it touches memory for the first time.

    ``worker_cpu_s``, by ``clock``, is the processor time of the worker: on a CPU machine that others use as well, it
    tells what a path costs where wall time does not.
    """
    tokens, rates, worker = sum(map(len, prompts)), [], []
    told: dict[str, Any] = {}
    for _ in range(job["repeats"] + 1):
        begun, before = time.monotonic(), clock()
        told = run(prompts) or {}
        seconds = told.pop("seconds", time.monotonic() - begun)
        rates.append(round(tokens / seconds))
        worker.append(round(clock() - before, 3))
    found = {"tokens": tokens, "rates": rates[1:], "median": statistics.median(rates[1:]), **told}
    return {**found, "worker_cpu_s": statistics.median(worker[1:])}


def asked(rpc: Callable[..., list[float]]) -> float:
    """Processor time of the worker that captures."""
    return rpc(cpu_seconds)[0]


def cpu_seconds(worker: Any) -> float:
    """Processor time of a worker's process."""
    return time.process_time()


def peak_mb(worker: Any = None) -> dict[str, int]:
    """Largest resident memory of this process so far, and what of the present one is shared with others."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    fields = {"peak": "VmHWM:", "shared_now": "RssShmem:"}
    return {name: int(status.split(key)[1].split()[0]) // 1000 for name, key in fields.items() if key in status}


@contextlib.contextmanager
def scratch(where: Path) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="extraction-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# --- plain vLLM ------------------------------------------------------------------------------------------------------


def plain_job(job: dict[str, Any], report: Report) -> None:
    """Plain prefill of one sampled token; with ``job['native']`` vLLM's own extraction."""
    from vllm import LLM, SamplingParams

    options: dict[str, Any] = {
        "dtype": job["dtype"], "trust_remote_code": True, "enforce_eager": True, "enable_prefix_caching": False,
        "max_model_len": MAX_LEN, "max_num_batched_tokens": job["budget"], "gpu_memory_utilization": job["memory"],
    }  # fmt: skip
    if job["shape"]["kind"] == "kimi_k25":
        options["limit_mm_per_prompt"] = dict.fromkeys(("image", "video", "vision_chunk"), 0)
        options["skip_mm_profiling"] = True
    with scratch(Path(job["ram"])) as folder:
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

        report.add("runner_v2", bool(getattr(llm.llm_engine.vllm_config, "use_v2_model_runner", False)))
        same, chat = prompts_of(job, job["count"]), prompts_of(job, job["count"], chat=True)
        name = "native extract_hidden_states to a RAM disk" if job["native"] else "plain prefill"
        clock = partial(asked, llm.collective_rpc)
        report.measure(name, partial(timed, job, same, run, clock))
        if job["chat"]:
            report.measure(f"{name}, chat lengths", partial(timed, job, chat, run, clock))


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


def generator_job(job: dict[str, Any], report: Report) -> None:
    """Every path of the generator, one after the other."""
    same, chat = prompts_of(job, job["count"]), prompts_of(job, job["count"], chat=True)
    ram, disk, threads = Path(job["ram"]), Path(job["disk"]), job["threads"]
    runs: list[tuple[str, dict[str, Any], list[list[int]], Callable[..., Any]]] = [
        ("stream()", job, same, stream),
        ("stream(), chat lengths", job, chat, stream),
        ("extract to a RAM disk", job, same, partial(written, where=ram, threads=threads)),
        ("extract to a RAM disk, chat lengths", job, chat, partial(written, where=ram, threads=threads)),
        ("generate(), 64 prompts a call", job, same, partial(generate, size=64)),
        ("worker, ms", job, same, clocked),
        ("extract to the disk", job, same, partial(written, where=disk, threads=threads)),
        ("stream(copy=True)", job, same, partial(stream, copy=True)),
        ("stream(), every result kept by the caller", job, same, partial(stream, keep=True)),
        ("old way: reply queue, 8 prompts a call", {**job, "repeats": 1}, same[:64], old_way),
    ]
    generator = None
    for name, how, prompts, run in runs:
        if prompts is chat and not job["chat"]:
            continue
        if job["paths"] and not any(part in name for part in job["paths"]):
            continue
        if getattr(generator, "executor", None) is None:  # at first, and after a failure that closed it
            generator = generator_of(job)
            report.add("runner", runner_of(generator))
            report.add("slots", generator._compat_ring.layout.slots)
        once = partial(run, generator)
        if run is clocked:
            report.measure(name, partial(once, prompts))
        else:
            report.measure(name, partial(timed, how, prompts, once, partial(asked, generator.executor.collective_rpc)))
    if generator is not None:
        generator.close()


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


def clocked(generator: Any, prompts: list[list[int]]) -> dict[str, float]:
    """Stream with clocks on the worker."""
    generator.executor.collective_rpc(watch)
    stream(generator, prompts)
    found: dict[str, float] = generator.executor.collective_rpc(clocks)[0]
    return found


def clocks(worker: Any) -> dict[str, float]:
    """Medians in milliseconds of what :func:`watch` saw."""
    import torch

    seen, worker._clocks = worker._clocks, []
    del worker._launch_step
    if len(seen) < 5:
        return {}
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


def stream(generator: Any, prompts: Iterable[list[int]], keep: bool = False, **options: Any) -> dict[str, Any]:
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
    """The pipeline's extract step, without its start."""
    import torch

    from speculators_compat.pipeline.extract import fill
    from speculators_compat.sample_files import installed_form
    from speculators_compat.store import Manifest, SampleStore

    rows = [{"input_ids": torch.tensor(ids), "loss_mask": torch.ones(len(ids), dtype=torch.int64)} for ids in prompts]
    sizes: list[int] = []

    def told(index: int, tokens: int, size: int, cut: int) -> None:
        sizes.append(size)

    with scratch(where) as folder:
        manifest = Manifest("m", list(generator.layer_ids), "auto", "0", len(rows), 0, MAX_LEN, {}, installed_form())
        store = SampleStore(folder / "data", manifest)
        with store.writing():
            begun = time.monotonic()
            shares = fill(generator, rows, range(len(rows)), store, told, writers=threads, window=64)
            wall = time.monotonic() - begun
    return {"seconds": wall, "bytes": sum(sizes), "shares": shares}


def old_way(generator: Any, prompts: list[list[int]]) -> None:
    """States of every step pickled into the executor's reply queue, one step at a time."""
    from speculators_compat.capture.generator import _request, upstream
    from speculators_compat.capture.ledger import Ledger, Step
    from speculators_compat.capture.loop import _starts
    from speculators_compat.capture.prompts import Prompt

    scheduler, executor = generator.scheduler, generator.executor
    pool = ThreadPoolExecutor(1)
    for start in range(0, len(prompts), 8):
        ledger = Ledger(len(generator.layer_ids), pool.submit)
        waiting = set()
        executor.collective_rpc("_reset_capture")
        generator._request_counter += 1
        for index, ids in enumerate(prompts[start : start + 8]):
            name = f"old-{generator._request_counter}-{index}"
            ledger.add(name, Prompt(index, ids, 0))
            waiting.add(name)
            scheduler.add_request(_request(generator, name, ids))
        while waiting:
            scheduled = scheduler.schedule()
            output = executor.execute_model(scheduled)
            replies = executor.collective_rpc("_take_captured_states", args=(scheduled.total_num_scheduled_tokens,))
            step = Step(list(output.req_ids), dict(scheduled.num_scheduled_tokens), _starts(scheduled))
            finished = ledger.place(step, next(reply for reply in replies if reply is not None))
            scheduler.finish_requests(finished, upstream().RequestStatus.FINISHED_ABORTED)
            waiting.difference_update(finished)
        executor.execute_model(scheduler.schedule())


def verify_job(job: dict[str, Any], report: Report) -> None:
    """States of unequal, chunked prompts through generate() and stream() against transformers in float32."""
    from speculators_compat.testing import random_prompts, reference_hidden_states, relative_error

    layers = job["shape"]["layers"]
    prompts = random_prompts(job["vocab"], LENGTHS)
    reference = reference_hidden_states(job["model"], prompts, layers)
    report.add("setting", {"lengths": LENGTHS, "tokens_a_step": job["budget"], "layers": layers})
    with generator_of(job) as generator:
        report.add("runner", runner_of(generator))
        for name, results in (
            ("generate()", generator.generate(prompts)),
            ("stream()", list(generator.stream(prompts * 3))[: len(prompts)]),
            ("stream(ordered=False), window 4", unordered(generator, prompts)),
        ):
            for prompt, result in zip(prompts, results, strict=True):
                assert result["input_ids"].tolist() == prompt
            worst = [
                max(relative_error(r["hidden_states"][k], e[k]) for r, e in zip(results, reference, strict=True))
                for k in range(len(layers))
            ]
            report.add(f"{name}, worst prompt of each layer", [round(error, 6) for error in worst])


def unordered(generator: Any, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Results of an unordered stream, put in order."""
    found = {result["index"]: result for result in generator.stream(prompts, ordered=False, window=4)}
    return [found[index] for index in range(len(prompts))]


def memory_job(job: dict[str, Any], report: Report) -> None:
    """Peak resident memory of this process and of the worker while data sets are streamed, the second ten times larger.

    A peak never falls: the second is the larger one by construction.
    """
    with generator_of(job) as generator:
        stream(generator, lazily(job, 2 * generator._compat_ring.layout.slots * job["budget"] // job["length"]))
        for count in (job["count"], 10 * job["count"]):
            seconds = stream(generator, lazily(job, count, chat=True), ordered=False)["seconds"]
            report.add(
                f"{count} prompts",
                {
                    "parent": peak_mb(),
                    "worker": generator.executor.collective_rpc(peak_mb)[0],
                    "seconds": round(seconds, 1),
                },
            )


def writers_job(job: dict[str, Any], report: Report) -> None:
    """Rate at which threads write samples to a RAM disk, the states being there already."""
    import torch

    from speculators_compat.sample_files import FORMS
    from speculators_compat.store import Manifest, SampleStore

    states = [torch.randn(job["length"], job["shape"]["hidden_size"]).bfloat16() for _ in job["shape"]["layers"]]
    ids = torch.zeros(job["length"], dtype=torch.int64)
    for form, threads in itertools.product(FORMS, (1, 2, 4, 8, 12)):
        with scratch(Path(job["ram"])) as folder:
            manifest = Manifest("m", job["shape"]["layers"], "auto", "0", 256, 0, MAX_LEN, {}, form)
            store = SampleStore(folder / "data", manifest)
            sample = {"input_ids": ids, "loss_mask": ids, "hidden_states": states}
            write = partial(store.write, sample=sample)
            with store.writing(), ThreadPoolExecutor(threads) as pool:
                begun = time.monotonic()
                size = sum(pool.map(write, range(128)))
                report.add(f"{form}, {threads} threads, GB/s", round(size / (time.monotonic() - begun) / 1e9, 2))


JOBS = {
    "plain": plain_job,
    "generator": generator_job,
    "verify": verify_job,
    "memory": memory_job,
    "writers": writers_job,
}


@dataclass
class Run:
    """All results so far, in DIR.

    Args:
        out: The folder.
        content: What is written.
        deadline: When the whole run ends, as ``time.monotonic()`` tells.
        limit_s: Most seconds of one process.
    """

    out: Path
    content: dict[str, Any]
    deadline: float
    limit_s: float
    failed: bool = False
    results: dict[str, Any] = field(default_factory=dict)

    def job(self, name: str, kind: str, job: dict[str, Any], runner: str | None = None) -> None:
        """Run a job in a process of its own and keep what it found, however it ends."""
        env = {**os.environ, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}  # functions are sent to workers
        if runner is not None:
            env["VLLM_USE_V2_MODEL_RUNNER"] = runner
        begun = time.monotonic()
        limit = min(self.limit_s, self.deadline - begun)
        with scratch(RAM_DISK) as ram, scratch(Path(tempfile.gettempdir())) as disk:
            result = disk / "result.json"
            job = {**job, "job": kind, "result": str(result), "ram": str(ram), "disk": str(disk)}
            ended = "no time was left"
            if limit > 0:
                ended = run_process([sys.executable, __file__, "--job", json.dumps(job)], env, limit)
            found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
        if ended:
            found["failed"] = ended
        parts = [found, *(value for value in found.values() if isinstance(value, dict))]
        self.failed = self.failed or any("failed" in part for part in parts)
        found["process_seconds"] = round(time.monotonic() - begun, 1)
        print(name, json.dumps(found), flush=True)
        self.results[name] = found
        self.save()

    def save(self) -> None:
        """Write everything."""
        content = {**self.content, "medians": medians(self.results), "results": self.results}
        text = json.dumps(content, indent=2) + "\n"
        (self.out / "extraction.json").write_text(text, encoding="utf-8")
        (self.out / "extraction.svg").write_text(chart(self.results), encoding="utf-8")


def run_process(command: list[str], env: dict[str, str], limit: float) -> str:
    """Run a command and whatever it starts for at most ``limit`` seconds; how it failed, or an empty string."""
    process = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        code = process.wait(limit)
        return f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        return f"ended after {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def chart(results: dict[str, Any]) -> str:
    """Bars of every median, in tokens a second, as SVG."""
    bars = [(f"{job}: {name}" if job.count(",") else name, rate) for job, name, rate in measured(results)]
    most = max((rate for _, rate in bars), default=1)
    lines = [
        f'<text x="390" y="{22 * row + 16}" text-anchor="end">{name}</text>'
        f'<rect x="400" y="{22 * row + 4}" width="{400 * rate / most:.0f}" height="16" fill="#4472a8"/>'
        f'<text x="{405 + 400 * rate / most:.0f}" y="{22 * row + 16}">{rate:,.0f}</text>'
        for row, (name, rate) in enumerate(bars)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{22 * len(bars) + 8}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *lines, "</svg>", ""])


def measure(options: argparse.Namespace, models: Path, run: Run) -> None:
    """Run what was asked for."""
    runners = options.runner or [None]
    base = {
        "dtype": options.dtype, "memory": options.memory, "repeats": options.repeats, "length": options.length,
        "count": options.count, "threads": options.threads, "paths": options.paths, "native": False,
        "budget": options.budget, "chat": options.chat,
    }  # fmt: skip
    if "verify" in options.only:
        for name in options.checked:
            shape = CHECKED[name]
            model = build(models / f"checked-{name}", shape, options.dtype)
            job = {**base, "shape": shape, "model": str(model), "vocab": shape["vocab_size"] - 256, "budget": 256}
            for runner in runners:
                run.job(label(f"verify {name}", runner), "verify", job, runner)
    shape = SHAPES[options.shape]
    if not {"speed", "memory", "writers"} & set(options.only):
        return
    begun = time.monotonic()
    model = build(models / options.shape, shape, options.dtype)
    print(f"{options.shape} made in {time.monotonic() - begun:.0f} s", flush=True)
    job = {**base, "shape": shape, "model": str(model), "vocab": shape["vocab_size"] - 256}
    if "writers" in options.only:
        run.job("writers", "writers", job)
    if "speed" in options.only:
        for runner, turn in itertools.product(runners, range(options.rounds)):
            for name in ("plain", "generator"):
                run.job(label(name, runner, turn), name, job, runner)
        if options.native:
            run.job("native", "plain", {**job, "native": True})
    if "memory" in options.only:
        run.job("memory", "memory", job, runners[0])


def label(name: str, runner: str | None, turn: int = 0) -> str:
    """Name of a result."""
    return name + f", runner {runner}" * (runner is not None) + f", round {turn + 1}" * bool(turn)


def measured(results: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Process, path and median rate in tokens a second of all that was timed."""
    for job, found in results.items():
        for name, value in found.items():
            if isinstance(value, dict) and "median" in value:
                yield job, name, value["median"]


def medians(results: dict[str, Any]) -> dict[str, float]:
    """Of each path, the median of what its rounds' processes found.

    On a CPU two processes that do the same can differ by a fifth from their first step to their last, with nothing
    else running; so one process of each kind tells nothing about a few percent.
    """
    rounds: dict[str, list[float]] = {}
    for job, name, rate in measured(results):
        rounds.setdefault(f"{job.split(', round ')[0]}: {name}", []).append(rate)
    return {name: statistics.median(values) for name, values in rounds.items()}


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
    parser.add_argument("--only", nargs="*", default=["speed", "memory"], choices=KINDS)
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--checked", nargs="*", default=list(CHECKED))
    parser.add_argument("--runner", nargs="*", help="VLLM_USE_V2_MODEL_RUNNER: 0, 1 or both; default: vLLM's choice")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory", type=float, default=0.5, help="gpu_memory_utilization")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="processes of plain and generator, one after the other")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--count", type=int, default=512, help="prompts")
    parser.add_argument("--budget", type=int, default=8192, help="tokens of a step")
    parser.add_argument("--threads", type=int, default=8, help="writers")
    parser.add_argument("--paths", nargs="*", default=[], help="parts of the names of the generator's paths")
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=True, help="lengths as in chats too")
    parser.add_argument("--native", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--limit-s", type=float, default=300, help="most seconds of one engine's process")
    parser.add_argument("--total-s", type=float, default=480, help="most seconds of the whole run")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        JOBS[job["job"]](job, Report(job["result"]))
        return 0
    begun = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"shape": options.shape, "dtype": options.dtype, "count": options.count}
    content |= {"length": options.length, "budget": options.budget, "repeats": options.repeats, "facts": facts()}
    run = Run(options.out, content, begun + options.total_s, options.limit_s)
    with scratch(Path(tempfile.gettempdir())) as models:
        measure(options, models, run)
    return int(run.failed)


if __name__ == "__main__":
    sys.exit(main())
