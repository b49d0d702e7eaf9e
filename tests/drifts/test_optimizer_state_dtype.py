import pytest

from speculators_compat.drifts.optimizer_state_dtype import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, trainer, write_samples
from tests.drifts.trained import trained
from tests.support import newer_trainer, older_trainer, shim, speculators_is

pytestmark = pytest.mark.engine


def moments(run) -> list:
    return [slot["exp_avg_sq"] for slot in run.opt.state.values()]


@older_trainer
@pytest.mark.parametrize(("off", "same"), [(DRIFT.id, False), ("", True)])
def test_moments_come_back_as_they_were_saved(tmp_path, off, same):
    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))
    samples = write_samples(tmp_path / "samples", config, count=4)
    with shim(without=off):
        first = trainer(draft_model(verifier, config), samples, tmp_path / "out", epochs=1)
        first.run_training()
        resumed = trainer(draft_model(verifier, config), samples, tmp_path / "out", epochs=2, resume=True)
    pairs = zip(moments(first), moments(resumed), strict=True)
    assert all(old.equal(new) for old, new in pairs) is same


@newer_trainer
@pytest.mark.parametrize(("off", "rounded"), [(DRIFT.id, True), ("", speculators_is("<0.7"))])
def test_the_saved_moments_have_the_dtype_of_training(training_run, tmp_path, off, rounded):
    """0.5 and 0.6 train in bfloat16 throughout; from 0.7 on the weights are in float32."""
    import torch

    trained(training_run, tmp_path / "run", without=off)
    saved = torch.load(tmp_path / "run" / "checkpoints" / "0" / "optimizer_state_dict.pt", weights_only=True)
    slots = [slot for part in (saved if isinstance(saved, list) else [saved]) for slot in part["state"].values()]
    kinds = {value.dtype for slot in slots for name, value in slot.items() if name != "step"}
    assert kinds == {torch.bfloat16 if rounded else torch.float32}
