"""The restored worker extension keeps several steps and hands them out by request, on plain torch modules."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch

from speculators_compat.capture import extension
from speculators_compat.drifts._absent import FOLDER

pytestmark = pytest.mark.default_pair

FILE = FOLDER / "speculators" / "data_generation" / "custom_worker.py"


def load():
    spec = importlib.util.spec_from_file_location("custom_worker_under_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Decoder(torch.nn.Module):
    """Two layers that add one each; no final norm and no embedding to check against."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(2))

    def forward(self, states):
        for layer in self.layers:
            states = layer(states) + 1
        return states


@pytest.fixture
def worker(monkeypatch):
    def set_up(self, layer_ids):
        self._compat_capture = extension._Capture(self.model_runner.model, list(layer_ids))
        return {}

    monkeypatch.setattr(extension.HiddenStatesWorkerExtension, "_setup_hidden_states_capture", set_up)
    made = load().HiddenStatesWorkerExtension()
    batch = SimpleNamespace(req_id_to_index={"b": 0, "a": 1})
    made.model_runner = SimpleNamespace(model=SimpleNamespace(model=Decoder()), input_batch=batch)
    made._setup_hidden_states_capture([1, 0])
    made._reset_capture()
    return made


def step(worker, rows):
    return worker.model_runner.model.model(torch.tensor(rows, dtype=torch.float32)[:, None])


def test_rows_of_two_steps_reach_their_requests_in_the_batch_order(worker):
    worker._set_request_metadata({"a": 1, "b": 2})
    step(worker, [10, 11, 20])  # b first, as the runner's batch has it
    worker._set_request_metadata({"a": 2})
    step(worker, [21, 22])
    found = worker._get_captured_states()
    last, first = found["a"]
    assert first.flatten().tolist() == [20, 21, 22]
    assert last.flatten().tolist() == [21, 22, 23]
    assert found["b"][1].flatten().tolist() == [10, 11]
    assert worker._get_captured_states() is None


def test_a_step_without_metadata_is_nobodys(worker):
    step(worker, [1, 2])
    assert worker._get_captured_states() is None


def test_rows_that_the_metadata_does_not_name_are_refused(worker):
    worker._set_request_metadata({"a": 1})
    step(worker, [1, 2])
    with pytest.raises(RuntimeError, match="ran 2 tokens, and the metadata of that step names 1"):
        worker._get_captured_states()


def test_a_runner_that_does_not_tell_the_order_is_refused(worker):
    worker.model_runner.input_batch = None
    worker._set_request_metadata({"a": 1})
    step(worker, [1])
    with pytest.raises(RuntimeError, match="use speculators"):
        worker._get_captured_states()


def test_other_ranks_have_nothing(worker):
    worker._compat_capture = None
    worker._set_request_metadata({"a": 1})
    assert worker._get_captured_states() is None
