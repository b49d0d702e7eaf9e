"""Threads that write: a bounded backlog, no waiting for the oldest, errors that are not lost."""

import threading

import pytest

from speculators_compat.pipeline.writing import Writers, shares


def test_a_long_write_does_not_hold_back_those_after_it():
    """Long and short samples are written together; the caller waits for any of them, not for the oldest."""
    released = threading.Event()
    with Writers(2) as writers:
        written = writers.submit(lambda: "long" if released.wait(20) else "the caller waited for the oldest")
        for number in range(20):
            written += writers.submit(lambda n: n, number)
        released.set()
        written += writers.finish()
    assert sorted(written, key=str) == sorted([*range(20), "long"], key=str)


def test_the_backlog_is_bounded():
    released, begun, submitted = threading.Event(), [], []

    def write(number):
        begun.append(number)
        assert released.wait(20)

    def caller():
        with Writers(2) as writers:
            for number in range(10):
                writers.submit(write, number)
                submitted.append(number)

    thread = threading.Thread(target=caller)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive(), "the caller waits"
    assert len(submitted) <= 4, "two are written and two wait"
    assert len(begun) <= 2
    released.set()
    thread.join(20)
    assert submitted == list(range(10))


def test_an_error_reaches_the_caller_and_stops_what_has_not_begun():
    written = []

    def write(number):
        if number == 1:
            raise OSError("no space")
        written.append(number)

    def caller():
        with Writers(1) as writers:
            for number in range(50):
                writers.submit(write, number)

    with pytest.raises(OSError, match="no space"):
        caller()
    assert len(written) < 49


def test_the_shares_of_the_time_add_up():
    found = shares(10.0, {"engine": 5.0, "copy": 1.0, "caller": 3.0}, 2.0)
    assert found == {"engine": 0.5, "copy": 0.1, "disk": 0.2, "other": 0.2}
    assert sum(shares(0.0, {"engine": 0.0, "copy": 0.0}, 0.0).values()) == 1.0
