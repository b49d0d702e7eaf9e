"""stream() and the transport on a real engine: slow, greedy, dropped callers, full memory, kill -9 of either side."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from speculators_compat import UsageError
from speculators_compat.capture import shared
from speculators_compat.capture.loop import DEPTH
from speculators_compat.testing import random_prompts
from tests.e2e.conftest import BUDGET, start

pytestmark = pytest.mark.engine

TOLERANCE = 2e-5
llama = pytest.mark.parametrize("engine", [("llama", 1)], indirect=True, ids=["llama-tp1"])


def resident(worker=None) -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def segments() -> set[str]:
    return {path.name for path in shared.FOLDER.glob(f"{shared.PREFIX}*")}


def usable(engine) -> None:
    prompts = engine.prompts(3, seed=31)
    assert engine.worst_error(prompts, engine.generator.generate(prompts)) <= TOLERANCE
    assert not engine.generator.scheduler.requests
    ring = engine.generator._compat_ring
    assert ring.free == ring.layout.slots, "a slot is lost"


@llama
@pytest.mark.parametrize("how", [{}, {"copy": True}, {"window": 3}, {"ordered": False}], ids=str)
def test_a_stream_gives_what_transformers_gives(engine, how):
    prompts = engine.prompts(40, seed=21)
    results = list(engine.generator.stream(iter(prompts), **how))
    order = [result["index"] for result in results]
    if how.get("ordered", True):
        assert order == list(range(40))
    results.sort(key=lambda result: result["index"])
    assert engine.worst_error(prompts, results) <= TOLERANCE
    del results
    usable(engine)


@llama
def test_a_slow_caller_gets_every_row_and_the_engine_waits(engine):
    prompts = random_prompts(engine.vocab_size, [BUDGET] * 12, 22)
    read = []

    def source():
        for prompt in prompts:
            read.append(prompt)
            yield prompt

    results = []
    for result in engine.generator.stream(source(), window=2):
        time.sleep(0.05)
        results.append(result)
        assert len(read) <= len(results) + 2 + DEPTH, "one prompt fills a step"
    assert engine.worst_error(prompts, results) <= TOLERANCE


@llama
def test_results_keep_their_values_while_the_engine_goes_on(engine):
    """Memory that is lent to the caller is not written again."""
    stream = engine.generator.stream(engine.prompts(40, seed=23))
    first = next(stream)
    before = [state.clone() for state in first["hidden_states"]]
    for _ in stream:
        pass
    assert all(torch.equal(a, b) for a, b in zip(before, first["hidden_states"], strict=True))


@llama
def test_ten_times_the_data_takes_no_more_memory(engine):
    """Of the caller's process and of the worker."""

    def peaks(count: int) -> list[int]:
        prompts = ([1 + i % 7] * BUDGET for i in range(count))
        here = 0
        for result in engine.generator.stream(prompts):
            here = max(here, resident())
            del result
        return [here, engine.generator.executor.collective_rpc(resident)[0]]

    peaks(20)
    once, tenfold = peaks(100), peaks(1000)
    data = 1000 * BUDGET * len(engine.layer_ids) * engine.generator._compat_ring.layout.width * 4
    assert data > 0.1 * max(once), "too little to show"
    assert all(later <= 1.05 * before for later, before in zip(tenfold, once, strict=True)), (once, tenfold)


@llama
def test_a_dropped_stream_leaves_the_engine_clean(engine):
    for result in engine.generator.stream(engine.prompts(60, seed=24)):
        assert result["index"] == 0
        break
    del result
    usable(engine)


@llama
def test_another_call_while_a_stream_is_open_is_refused(engine):
    stream = engine.generator.stream(engine.prompts(20, seed=25))
    next(stream)
    with pytest.raises(UsageError, match="a stream of it that is still open"):
        engine.generator.generate([[1, 2]])
    stream.close()
    stream.close()
    usable(engine)


@llama
@pytest.mark.parametrize("bad", [[], [10**6], "text", KeyError("of the caller")], ids=repr)
def test_a_bad_prompt_or_the_callers_exception_leaves_the_engine_usable(engine, bad):
    def source():
        yield from engine.prompts(5, seed=26)
        if isinstance(bad, Exception):
            raise bad
        yield bad

    with pytest.raises(KeyError if isinstance(bad, Exception) else UsageError):
        list(engine.generator.stream(source(), window=2))
    usable(engine)


@llama
@pytest.mark.parametrize("given", ["text", 7, {1: [2]}])
def test_what_is_no_iterable_of_prompts_is_refused_at_once(engine, given):
    with pytest.raises(UsageError, match="iterable of prompts"):
        engine.generator.stream(given)
    with pytest.raises(UsageError, match="window"):
        engine.generator.stream([[1]], window=0)


@llama
def test_no_name_is_left_in_shared_memory_while_an_engine_runs(engine):
    assert not any(name.startswith(f"{shared.PREFIX}{os.getpid()}-") for name in segments())


@llama
def test_full_shared_memory_is_one_error_and_no_worker_is_left(engine, monkeypatch):
    workers = set(children(os.getpid()))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shared.os, "posix_fallocate", full)
    before = segments()
    with pytest.raises(UsageError, match=r"/dev/shm must hold [\d,]+ MB for the hidden states of a few steps"):
        start("llama", engine.directory, engine.layer_ids)
    assert segments() == before
    assert set(children(os.getpid())) <= workers
    monkeypatch.undo()
    usable(engine)


def children(pid: int) -> list[int]:
    """Living processes whose ancestor is ``pid``."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(entry.parent.name)] = int(fields[1])
    found, wave = [], [pid]
    while wave:
        wave = [child for child, parent in parents.items() if parent in wave]
        found += wave
    return found


def test_a_worker_killed_in_the_middle_of_a_stream_is_an_error_and_leaves_nothing(models):
    victim = start("llama", models("llama", num_hidden_layers=6), [3, 0, 5, 1])
    worker = victim.generator.executor.workers[0].proc
    before = segments()

    def consume():
        for result in victim.generator.stream(victim.prompts(400, seed=27)):
            if result["index"] == 3:
                os.kill(worker.pid, signal.SIGKILL)

    with pytest.raises(RuntimeError):
        consume()
    with pytest.raises(RuntimeError, match="closed"):
        next(victim.generator.stream([[1]]))
    assert segments() == before


PARENT = """
import os, sys
from tests.e2e.conftest import start
if __name__ == "__main__":
    engine = start("llama", sys.argv[1], [3, 0, 5, 1])
    pids = [worker.proc.pid for worker in engine.generator.executor.workers]
    for result in engine.generator.stream(engine.prompts(4000, seed=28)):
        if result["index"] == 3:
            print("pids", *pids, flush=True)
"""


def test_a_parent_killed_in_the_middle_of_a_stream_leaves_no_worker_and_no_memory(models, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    before = segments()
    process = subprocess.Popen(
        [sys.executable, str(script), str(models("llama", num_hidden_layers=6))],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    line = next(line for line in process.stdout if line.startswith("pids "))
    workers = [int(pid) for pid in line.split()[1:]]
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.1)
    assert segments() == before


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
