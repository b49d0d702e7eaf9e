"""The symptom needs two processes: tests/e2e/test_distributed_training.py. Here, what is handed on."""

from __future__ import annotations

import pytest

from speculators_compat.drifts.gloo_average import _dist_that_averages


class Dist:
    """Stands for torch.distributed: three processes that hold the same value."""

    class ReduceOp:
        AVG, SUM, MAX = "avg", "sum", "max"

    def __init__(self, backend: str) -> None:
        self.backend, self.operations = backend, []

    def get_backend(self) -> str:
        return self.backend

    def get_world_size(self) -> int:
        return 3

    def barrier(self) -> str:
        return "passed on"

    def reduce(self, values, dst, op):
        self.operations.append(op)
        values.total(3 if op == "sum" else 1)


class Values:
    def __init__(self, value: float) -> None:
        self.value = value

    def total(self, factor: int) -> None:
        self.value *= factor

    def __itruediv__(self, divisor: int) -> Values:  # noqa: PYI034 (typing.Self needs Python 3.11)
        self.value /= divisor
        return self


@pytest.mark.parametrize(
    ("backend", "asked", "done"), [("gloo", "avg", "sum"), ("nccl", "avg", "avg"), ("gloo", "max", "max")]
)
def test_only_an_average_over_gloo_changes(backend, asked, done):
    dist, values = Dist(backend), Values(2.0)
    ours = _dist_that_averages(dist)
    ours.reduce(values, dst=0, op=asked)
    assert dist.operations == [done]
    assert values.value == 2.0
    assert ours.barrier() == "passed on"
