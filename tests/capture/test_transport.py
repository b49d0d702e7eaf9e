"""Slots and segments: who may use them, when they come back, and what is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys

import pytest
import torch

from speculators_compat.capture import shared, transport
from speculators_compat.capture.outbox import Outbox
from speculators_compat.capture.transport import Layout, Ring
from speculators_compat.drift import UsageError

pytestmark = pytest.mark.default_pair

LAYOUT = Layout(layers=2, rows=5, width=3, dtype="bfloat16", itemsize=2, slots=3)


@pytest.fixture
def ring():
    made = Ring(LAYOUT)
    yield made
    made.segment.unlink()


def names() -> set[str]:
    return {path.name for path in shared.FOLDER.glob(f"{shared.PREFIX}*")}


def outbox(ring) -> Outbox:
    return Outbox(ring.segment.name, Layout(**ring.layout.as_dict()), torch.device("cpu"))


def step(box: Outbox, number: int, value: float, rows: int = 4) -> None:
    box.begin(number, rows)
    box.write_ids(torch.arange(rows + 1, dtype=torch.int32))
    hidden = torch.full((rows + 1, 3), value, dtype=torch.bfloat16)  # one row of padding
    box.write(0, (hidden, hidden))
    box.write(1, hidden)
    assert box.finish()
    box.wait(number)


def test_what_the_worker_writes_is_what_the_other_side_reads(ring):
    box = outbox(ring)
    first, second = ring.acquire(), ring.acquire()
    step(box, first, 1.5)
    step(box, second, -3.0)
    for number, value in ((first, 1.5), (second, -3.0)):
        lease = ring.lease(number)
        assert lease.slot.token_ids[:4].tolist() == [0, 1, 2, 3]
        assert lease.slot.bounds.tolist() == [[2 * value, value], [2 * value, value]]
        assert torch.equal(lease.rows(0, 1, 3), torch.full((3, 3), 2 * value, dtype=torch.bfloat16))
        assert torch.equal(lease.slot.states[1, :4], torch.full((4, 3), value, dtype=torch.bfloat16))


def test_values_that_are_not_finite_show_in_the_bounds(ring):
    box = outbox(ring)
    for bad in (float("nan"), float("inf"), float("-inf")):
        step(box, 0, bad)
        assert not torch.isfinite(ring.lease(0).slot.bounds).all(dim=0).any()


@pytest.mark.parametrize(
    "given", [torch.zeros(4, 2, dtype=torch.bfloat16), torch.zeros(4, 3), torch.zeros(2, 3, dtype=torch.bfloat16)]
)
def test_states_of_another_shape_or_dtype_are_refused(ring, given):
    box = outbox(ring)
    box.begin(0, 4)
    with pytest.raises(RuntimeError, match=r"states must be \(4, 3\) of torch.bfloat16"):
        box.write(0, given)


def test_a_slot_comes_back_when_its_last_tensor_is_dropped(ring):
    numbers = [ring.acquire() for _ in range(3)]
    assert sorted(numbers) == [0, 1, 2]
    assert ring.acquire() is None
    lease = ring.lease(numbers[0])
    rows = lease.rows(0, 1, 2)
    assert rows.untyped_storage().nbytes() == 2 * 3 * 2, "saving it writes these rows only"
    part = rows[:1].view(3)
    del lease, rows
    gc.collect()
    assert (ring.free, ring.lent) == (0, 1), "a part of a part still lies in the slot"
    del part
    assert (ring.free, ring.lent) == (1, 0)
    assert ring.acquire(timeout=1) == numbers[0]


def test_tensors_outlive_the_ring(ring):
    box = outbox(ring)
    step(box, ring.acquire(), 2.0)
    rows = ring.lease(0).rows(1, 0, 4)
    ring.segment.unlink()
    del ring, box
    gc.collect()
    assert torch.equal(rows, torch.full((4, 3), 2.0, dtype=torch.bfloat16))


def test_fewer_slots_are_made_where_there_is_less_room(monkeypatch):
    monkeypatch.setattr(transport, "free_bytes", lambda: int(2.5 * LAYOUT.slot_bytes))
    ring = Ring(LAYOUT)
    ring.segment.unlink()
    assert ring.layout.slots == ring.free == 2


def test_a_full_folder_is_one_clear_error_and_leaves_nothing():
    before = names()
    huge = Layout(layers=4, rows=10**7, width=10**5, dtype="float32", itemsize=4)
    with pytest.raises(UsageError, match=r"/dev/shm must hold [\d,]+ MB .* Found: .* MB free \(No space left"):
        Ring(huge)
    assert names() == before


OWNER = """
import os, sys, time
from speculators_compat.capture.shared import Segment
segment = Segment.create(1 << 16)
print(segment.name, flush=True)
time.sleep(600)
"""


def owner() -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_only_what_dead_owners_left_is_removed():
    dead, left = owner()
    living, used = owner()
    foreign = shared.FOLDER / f"not-ours-{os.getpid()}"
    foreign.touch()
    try:
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()
        assert {left, used} <= names(), "kill -9 leaves a segment whose name was still there"
        mine = shared.Segment.create(4096)
        assert left not in names()
        assert {used, mine.name} <= names(), "segments of living owners are left alone"
        assert shared.sweep() == []
        assert foreign.exists()
        mine.unlink()
        mine.unlink()
    finally:
        foreign.unlink()
        for process in (dead, living):
            process.kill()
            process.wait()
            process.stdout.close()
        shared.sweep()
    assert not {left, used} & names()


def test_a_segment_without_a_name_is_shared_until_both_ends_are_gone():
    segment = shared.Segment.create(4096)
    other = shared.Segment.attach(segment.name)
    segment.unlink()
    segment.map[:4] = b"abcd"
    assert other.map[:4] == b"abcd"
    assert segment.name not in names()


def test_a_newborn_file_that_a_sweep_takes_is_made_again(monkeypatch):
    """A sweep may lock the file between its creation and its owner's lock."""
    flock, swept = shared.fcntl.flock, []

    def late(file, how):
        if not swept:
            swept.extend(shared.FOLDER.glob(f"{shared.PREFIX}{os.getpid()}-*"))
            for path in swept:
                path.unlink()
        return flock(file, how)

    monkeypatch.setattr(shared.fcntl, "flock", late)
    segment = shared.Segment.create(4096)
    assert swept
    assert (shared.FOLDER / segment.name).stat().st_size == 4096
    segment.unlink()
