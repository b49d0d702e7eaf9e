import pytest

from speculators_compat.drifts.batch_dtype import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import Losses, draft_model, loader, trainer, write_samples
from tests.support import shim

pytestmark = pytest.mark.engine


def test_batches_are_as_stored_and_train_alike(tmp_path):
    import torch
    from speculators.train.data import list_files

    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))
    samples = write_samples(tmp_path / "samples", config, count=4)
    losses = {}
    for off, dtype in ((DRIFT.id, torch.float32), ("", torch.bfloat16)):
        with shim(without=off):
            batch = next(iter(loader(sorted(list_files(samples)))))
            assert batch["hidden_states"].dtype == batch["verifier_last_hidden_states"].dtype == dtype
            with Losses() as found:
                trainer(draft_model(verifier, config), samples, tmp_path / f"out-{off}", epochs=1).run_training()
            losses[off] = found
    # bfloat16 values are float32 values: nothing is rounded on the way.
    assert losses[""] == losses[DRIFT.id]


def test_a_dtype_that_the_caller_chose_stays(tmp_path):
    import torch

    samples = write_samples(tmp_path / "samples", text_config(str(make_llama(tmp_path / "llama"))), count=1)
    with shim():
        from speculators.train.data import Eagle3SampleFileDataset, list_files

        chosen = Eagle3SampleFileDataset(64, file_list=list_files(samples), hidden_states_dtype=torch.float64)
        assert chosen[0]["hidden_states"].dtype == torch.float64
