import pytest

from speculators_compat.drifts.optimizer_state_dtype import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, trainer, write_samples
from tests.support import shim

pytestmark = pytest.mark.engine


def moments(run) -> list:
    return [slot["exp_avg_sq"] for slot in run.opt.state.values()]


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
