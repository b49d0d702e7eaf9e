import copy
import pickle

import pytest

from speculators_compat.drifts.trainer_device import DRIFT, CpuRank
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, trainer, write_samples
from tests.drifts.trained import trained
from tests.support import newer_trainer, older_trainer, shim

pytestmark = pytest.mark.engine


@older_trainer
def test_symptom_without_and_cpu_with(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))
    samples = write_samples(tmp_path / "samples", config)
    with shim(without=DRIFT.id), pytest.raises(RuntimeError) as error:
        trainer(draft_model(verifier, config), samples, tmp_path / "a", epochs=1)
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    with shim():
        trained = trainer(draft_model(verifier, config), samples, tmp_path / "b", epochs=1)
        trained.run_training()
    assert trained.local_rank == 0
    assert {parameter.device.type for parameter in trained.model.parameters()} == {"cpu"}


@newer_trainer
def test_symptom_without_and_a_trained_draft_with(training_run, tmp_path):
    with pytest.raises(RuntimeError) as error:
        trained(training_run, tmp_path / "a", without=DRIFT.id)
    assert f"RuntimeError: {error.value}".startswith(DRIFT.symptom)
    assert trained(training_run, tmp_path / "b")["steps"] > 0


def test_rank_is_a_number_and_a_device():
    import torch

    rank = CpuRank(3)
    assert rank == 3
    assert rank != 0
    assert rank == "cpu"
    assert torch.zeros(1).to(rank).device.type == "cpu"
    for same in (copy.deepcopy(rank), pickle.loads(pickle.dumps(rank))):
        assert same == 3
        assert same == "cpu"
