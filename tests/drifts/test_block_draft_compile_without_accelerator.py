import pytest

from speculators_compat.drifts.block_draft_compile_without_accelerator import DRIFT
from tests.drifts.trained import trained
from tests.support import applies, speculators_is
from tests.training_runs import BLOCKS

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@pytest.mark.skipif(not speculators_is("<0.6"), reason="beside torch 2.11 it compiles, in minutes")
def test_symptom_without(training_run, tmp_path):
    from torch._inductor.exc import InductorError

    with pytest.raises(InductorError) as error:
        trained(training_run, tmp_path / "a", without=DRIFT.id, algorithm="dflash", options=BLOCKS)
    assert DRIFT.symptom.endswith(str(error.value).splitlines()[0])


def test_nothing_is_compiled_with(training_run, tmp_path):
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    assert trained(training_run, tmp_path / "b", algorithm="dflash", options=BLOCKS)["steps"] > 0
    assert not counters["frames"]
