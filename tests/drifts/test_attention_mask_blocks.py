import pytest

from speculators_compat.drifts.attention_mask_blocks import DRIFT
from speculators_compat.mask_blocks import MASK_BLOCK as BLOCK
from tests.support import shim

pytestmark = pytest.mark.engine


def missing_draft_tokens(length: int) -> int:
    """Tokens of the second draft step whose own position lies in no block of the extended mask."""
    import torch
    from speculators.models.eagle3.attention import (
        create_combined_mask_mod,
        extend_mask_for_draft_tokens,
    )
    from torch.nn.attention.flex_attention import create_block_mask

    mask_mod = create_combined_mask_mod(torch.tensor([length]), length)
    blocks = create_block_mask(mask_mod, B=None, H=None, Q_LEN=length, KV_LEN=length, device="cpu")
    extended = extend_mask_for_draft_tokens(blocks)
    missing = 0
    for query in range(length):
        row = query // BLOCK
        listed = extended.kv_indices[0, 0, row, : extended.kv_num_blocks[0, 0, row]].tolist()
        if extended.full_kv_indices is not None:
            count = extended.full_kv_num_blocks[0, 0, row]
            listed += extended.full_kv_indices[0, 0, row, :count].tolist()
        missing += (length + query) // BLOCK not in listed
    return missing


def batch_length(max_len: int) -> int:
    import torch
    from speculators.train.data import create_collate_fn

    sample = {"input_ids": torch.arange(40), "lengths": torch.tensor([40])}
    batch = create_collate_fn(max_len)([sample, sample])
    assert batch["lengths"].tolist() == [40, 40]
    return batch["input_ids"].shape[1]


@pytest.mark.parametrize("max_len", [200, 256, 1])
def test_every_batch_has_whole_blocks(max_len):
    if max_len == 200:
        with shim(without=DRIFT.id):
            assert missing_draft_tokens(batch_length(max_len)) > 0
    with shim():
        length = batch_length(max(max_len, 100))
        assert length % BLOCK == 0
        assert max_len <= length < max(max_len, 100) + BLOCK
        assert missing_draft_tokens(length) == 0


def test_block_size_is_torchs():
    from torch.nn.attention import flex_attention

    assert flex_attention._DEFAULT_SPARSE_BLOCK_SIZE == BLOCK
