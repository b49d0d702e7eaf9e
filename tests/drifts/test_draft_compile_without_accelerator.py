import pytest

from speculators_compat.drifts.draft_compile_without_accelerator import DRIFT
from speculators_compat.testing import make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


def loss_of(draft):
    import torch

    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, 128, 3 * draft.hidden_size, generator=generator)
    ids = torch.arange(128).unsqueeze(0)
    last = states[..., : draft.hidden_size]
    return draft(hidden_states=states, input_ids=ids, verifier_last_hidden_states=last, ttt_steps=1)[1]


def test_symptom_without_and_gradients_with(tmp_path):
    from torch._inductor.exc import InductorError

    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))
    with shim(without=DRIFT.id), pytest.raises(InductorError) as error:
        loss_of(draft_model(verifier, config))
    assert DRIFT.symptom.endswith(str(error.value).splitlines()[0])
    with shim():
        draft = draft_model(verifier, config)
        loss_of(draft).backward()
    for name in ("fc", "lm_head"):
        assert getattr(draft, name).weight.grad.abs().sum() > 0
