import json

import pytest

from speculators_compat.drifts.verifier_architectures import DRIFT
from tests.drifts.trained import trained
from tests.support import applies

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@pytest.mark.parametrize(("off", "expected"), [(DRIFT.id, []), ("", ["KimiK25ForConditionalGeneration"])])
def test_saved_config(training_run, tmp_path, off, expected):
    trained(training_run, tmp_path / "run", without=off)
    saved = json.loads((tmp_path / "run" / "checkpoints" / "0" / "config.json").read_text())
    assert saved["speculators_config"]["verifier"]["architectures"] == expected


def test_a_verifier_that_cannot_be_read_stays_without(tmp_path):
    from speculators.config import VerifierConfig
    from transformers import LlamaConfig

    assert VerifierConfig.from_config(LlamaConfig(), name_or_path=str(tmp_path)).architectures == []
