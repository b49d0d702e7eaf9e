import pytest

from speculators_compat.drifts.fused_loss_without_accelerator import DRIFT
from tests.drifts.trained import trained
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]

LOSSES = ("kl_div", "rkl", "jsd", "ce", "tv", "nla", "lk_hybrid")


def test_symptom_without_and_a_loss_with(training_run, tmp_path):
    with pytest.raises(RuntimeError) as error:
        trained(training_run, tmp_path / "a", without=DRIFT.id)
    assert f"RuntimeError: {error.value}" == DRIFT.symptom
    assert trained(training_run, tmp_path / "b")["first_loss"] > 0


def test_every_loss_is_the_plain_one():
    import torch

    generator = torch.Generator().manual_seed(0)
    logits, targets = (torch.randn(1, 5, 32, generator=generator) for _ in range(2))
    with shim():
        from speculators.losses import resolve_loss_config

        for name in LOSSES:
            found, expected = (resolve_loss_config(name, kind)[name][0](logits, targets) for kind in ("fused", "eager"))
            assert found.equal(expected)
