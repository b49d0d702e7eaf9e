import pytest

from speculators_compat.drifts.target_vocabulary_config import DRIFT
from tests.drifts.text_configs import unknown_wrapper
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def test_symptom_without_and_the_language_model_with(tmp_path):
    path = unknown_wrapper(tmp_path / "kimi")
    with shim(without=DRIFT.id), pytest.raises(ValueError, match="contains custom code which must be executed"):
        read(path)
    with shim():
        assert read(path) == 768


def read(path) -> int:
    from speculators.train.vocab_mapping import get_target_vocab_size

    return get_target_vocab_size(None, str(path))
