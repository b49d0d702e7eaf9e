import logging

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.dropped_conversations import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import applies, shim, speculators_is

pytestmark = [pytest.mark.engine, applies(DRIFT)]

GOOD = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "an answer"}]
BAD = [{"role": "nobody", "content": "text"}]


def test_symptom_without_and_clear_error_with(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    if speculators_is(">=0.7"):  # asks the caller whether an empty data set is meant
        with shim(), pytest.raises(ValueError, match="No samples remain"):
            prepare(verifier, [BAD] * 2, tmp_path / "a")
        return
    with shim(without=DRIFT.id), pytest.raises(IndexError) as error:
        prepare(verifier, [BAD] * 2, tmp_path / "a")
    assert f"IndexError: {error.value}" == DRIFT.symptom
    with shim(), pytest.raises(UsageError, match="2 conversations, all dropped"):
        prepare(verifier, [BAD] * 2, tmp_path / "b")


def test_dropped_and_untrainable_samples_are_counted(tmp_path, caplog):
    verifier = make_llama(tmp_path / "llama")
    with shim(), caplog.at_level(logging.WARNING):
        dataset, _ = prepare(verifier, [GOOD, BAD, GOOD[:1]], tmp_path)
    assert len(dataset) == 2
    assert "1 of 3 conversations were dropped" in caplog.text
    assert "1 of 2 samples have no token to train on" in caplog.text


def test_rows_without_conversations_are_refused(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    with shim(), pytest.raises(UsageError, match="Found: columns talks"):
        prepare(verifier, [GOOD], tmp_path, column="talks")
