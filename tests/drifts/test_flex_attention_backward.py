import pytest

from speculators_compat.drifts.flex_attention_backward import DRIFT, dense_attention
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model, trainer, write_samples
from tests.support import shim

pytestmark = pytest.mark.engine


def test_symptom_and_fix(states, tmp_path):
    """Bound to torch: training fails without exactly where the probe says that the fix is needed."""
    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))
    samples = write_samples(tmp_path / "samples", config, count=4)

    def train() -> None:
        trainer(draft_model(verifier, config), samples, tmp_path / "out", epochs=1).run_training()

    if states[DRIFT.id] == "applied":
        with shim(without=DRIFT.id), pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            train()
    with shim():
        train()
    assert (tmp_path / "out" / "0" / "model.safetensors").is_file()


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_computes_what_flex_attention_computes(kv_heads):
    """Documents of 7 and 9 tokens and 4 tokens of padding, which see nothing."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    documents = torch.tensor([0] * 7 + [1] * 9 + [-1] * 4)

    def sees(batch, head, query, key):
        return (documents[query] == documents[key]) & (documents[query] >= 0) & (key <= query)

    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 20, 32, generator=generator)
    key, value = (torch.randn(1, kv_heads, 20, 32, generator=generator) for _ in range(2))
    options = {"scale": 0.3, "enable_gqa": kv_heads != 4}
    mask = create_block_mask(sees, B=None, H=None, Q_LEN=20, KV_LEN=20, device="cpu")
    expected = flex_attention(query, key, value, block_mask=mask, **options)
    query.requires_grad_()
    found = dense_attention(query, key, value, sees, **options)
    torch.testing.assert_close(found, expected)
    assert not found[:, :, 16:].any()
    found.square().sum().backward()
    assert query.grad.isfinite().all()
