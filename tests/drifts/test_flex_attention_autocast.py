import pytest

from speculators_compat.activation import outcomes
from speculators_compat.drifts.flex_attention_autocast import DRIFT, has_no_rule, in_autocast_dtype
from tests.drifts.trained import trained
from tests.support import applies, shim
from tests.training_runs import options_of


@pytest.mark.engine
@applies(DRIFT)
def test_symptom_without_and_a_trained_draft_with(training_run, tmp_path):
    """Bound to torch: training fails without exactly where the probe says that the fix is needed."""
    with shim():
        import speculators.models.attention  # noqa: F401

        needed = next(item.state.value for item in outcomes() if item.drift.id == DRIFT.id) == "applied"
    block = {"algorithm": "dflash", "options": options_of("dflash")}
    if needed:
        with pytest.raises(ValueError, match="query, key, and value to have the same dtype"):
            trained(training_run, tmp_path / "a", without=DRIFT.id, **block)
    assert trained(training_run, tmp_path / "b", **block)["steps"] > 0


@pytest.mark.engine
def test_mixed_dtypes_attend_in_autocasts_and_the_compiler_sees_one_graph():
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda batch, head, query, key: key <= query, None, None, 128, 128, device="cpu")
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 128, 16, generator=generator) for _ in range(3))
    traced = torch.compile(in_autocast_dtype(flex_attention), backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        if has_no_rule():
            with pytest.raises(ValueError, match="same dtype"):
                flex_attention(query, key, value.bfloat16(), block_mask=mask)
        found = traced(query, key, value.bfloat16(), block_mask=mask)
    expected = flex_attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), block_mask=mask)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)
    outside = traced(query, key, value, block_mask=mask)
    assert outside.dtype == torch.float32
    assert torch.equal(outside, flex_attention(query, key, value, block_mask=mask))
