import pytest

from speculators_compat.drifts.stale_token_frequencies import DRIFT
from speculators_compat.testing import make_llama
from tests.drafts import prepare
from tests.support import shim

pytestmark = pytest.mark.engine

TURNS = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "an answer"}]


@pytest.mark.parametrize(("off", "is_stale"), [(DRIFT.id, True), ("", False)])
def test_counts_are_of_the_data_at_hand(tmp_path, off, is_stale):
    import torch

    verifier = make_llama(tmp_path / "llama")
    stale = {7: 123}
    torch.save(stale, tmp_path / "token_freq.pt")
    with shim(without=off):
        dataset, _ = prepare(verifier, [TURNS], tmp_path)
    (row,) = dataset
    ids, counts = row["input_ids"][row["loss_mask"].bool()].unique(return_counts=True)
    counted = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    saved = torch.load(tmp_path / "token_freq.pt", weights_only=True)
    assert saved == (stale if is_stale else counted)
    assert [path.name for path in tmp_path.glob("*token_freq*")] == ["token_freq.pt"]
