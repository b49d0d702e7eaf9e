"""Finding the decoder, and what the hooks catch, on plain torch modules."""

from __future__ import annotations

import pytest
import torch

from speculators_compat.capture.decoder import find_decoder
from speculators_compat.capture.extension import _Capture

pytestmark = pytest.mark.default_pair


class Layer(torch.nn.Module):
    def __init__(self, number: int, form: str) -> None:
        super().__init__()
        self.number, self.form = number, form

    def forward(self, hidden, residual):
        residual = hidden if residual is None else residual + hidden
        hidden = torch.full_like(residual, float(self.number + 1))
        if self.form == "tensor":
            return residual + hidden, None
        return hidden, residual


class Decoder(torch.nn.Module):
    def __init__(self, form: str = "pair") -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(10, 2)
        self.layers = torch.nn.ModuleList(Layer(i, form) for i in range(4))
        self.form = form

    def forward(self, ids):
        hidden, residual = self.embed_tokens(ids), None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual)
            if residual is not None:
                residual.add_(0)  # vLLM's fused add-norm writes in place
        return hidden


def causal(decoder):
    model = torch.nn.Module()
    model.model = decoder
    return model


def wrapper(inner):
    model = torch.nn.Module()
    model.language_model = inner
    model.vision_tower = torch.nn.Linear(1, 1)
    model.get_language_model = lambda: inner
    return model


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (causal, "model.model"),
        (lambda d: wrapper(causal(d)), "get_language_model().model"),
        (wrapper, "get_language_model()"),  # Kimi-K2.5 on vLLM 0.15
        (lambda d: causal(causal(d)), "model.model.model"),
    ],
)
def test_the_decoder_is_found(build, path):
    decoder = Decoder()
    assert find_decoder(build(decoder)) == (decoder, path)


def test_no_decoder_is_one_clear_error():
    model = torch.nn.Module()
    model.encoder = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"no decoder layers found in Module.*children encoder"):
        find_decoder(model)


@pytest.mark.parametrize("form", ["pair", "tensor"])
def test_states_are_the_residual_stream_in_the_callers_order(form):
    decoder = Decoder(form)
    capture = _Capture(causal(decoder), [3, 0, 2])
    decoder(torch.tensor([1, 2, 3]))  # warm-up: not armed
    capture.reset()
    ids = torch.tensor([4, 5, 6, 0, 0])  # two rows of padding
    with torch.no_grad():
        decoder(ids)
    embedded = decoder.embed_tokens.weight[ids[:3]].detach()
    ids.zero_()  # the runner reuses its buffer
    reply = capture.take(3)
    expected = [embedded + sum(range(1, layer + 2)) for layer in (3, 0, 2)]
    for found, wanted in zip(reply["states"], expected, strict=True):
        assert torch.allclose(found, wanted)
    assert reply["token_ids"].tolist() == [4, 5, 6]
    assert reply["finite"] == [True, True, True]


def test_states_are_memory_of_their_own():
    hidden, residual = torch.ones(2, 2), torch.ones(2, 2)
    from speculators_compat.capture.extension import _state

    for output in ((hidden, residual), (hidden, None), (hidden,), hidden):
        state = _state(output)
        before = state.clone()
        hidden.add_(5), residual.add_(5)
        assert torch.equal(state, before)


def test_a_step_that_ran_twice_or_never_is_refused():
    decoder = Decoder()
    capture = _Capture(causal(decoder), [1])
    capture.reset()
    with pytest.raises(RuntimeError, match="exactly once"):
        capture.take(1)
    decoder(torch.tensor([1]))
    decoder(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="exactly once"):
        capture.take(1)


def test_non_finite_states_are_reported():
    decoder = Decoder()
    capture = _Capture(causal(decoder), [0, 1])
    capture.reset()
    with torch.no_grad():
        decoder.embed_tokens.weight[7] = float("nan")
        decoder(torch.tensor([7]))
    assert capture.take(1)["finite"] == [False, False]


def test_hooks_can_be_removed():
    decoder = Decoder()
    capture = _Capture(causal(decoder), [0])
    capture.remove()
    capture.reset()
    decoder(torch.tensor([1]))
    assert not capture.states
    assert not capture.token_ids


class FusedNorm(torch.nn.Module):
    """As vLLM's RMSNorm: with a residual it adds first, in place, and returns the sum as the new residual."""

    def forward(self, hidden, residual=None):
        if residual is None:
            return hidden / 2
        residual.add_(hidden)
        hidden.copy_(residual / 2)
        return hidden, residual


class SumsInside(torch.nn.Module):
    """As Exaone 4 or StableLM: the first element holds the residual already."""

    def forward(self, hidden, residual):
        stream = hidden + 1
        return stream, hidden


def decoder_with(layer, norm, paired):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = torch.nn.Embedding(10, 4)
            self.layers = torch.nn.ModuleList([layer(), layer()])
            self.norm = norm

        def forward(self, ids):
            hidden, residual = self.embed_tokens(ids), None
            for each in self.layers:
                hidden, residual = each(hidden, residual)
            return self.norm(hidden, residual) if paired else self.norm(hidden)

    return Model()


@pytest.mark.parametrize(
    ("layer", "paired", "right"),
    [
        (lambda: Layer(0, "pair"), True, True),
        (lambda: Layer(0, "tensor"), False, True),
        (SumsInside, False, False),
    ],
    ids=["hidden and residual", "one tensor", "residual summed inside"],
)
def test_the_stream_is_compared_with_the_final_norms_own_input(layer, paired, right):
    decoder = decoder_with(layer, FusedNorm(), paired)
    capture = _Capture(causal(decoder), [0])
    capture.reset()
    with torch.no_grad():
        decoder(torch.tensor([1, 2, 3]))
    if right:
        assert len(capture.take(3)["states"]) == 1
        assert capture.check.handles == [], "once is enough"
    else:
        with pytest.raises(RuntimeError, match="not the residual stream in this model"):
            capture.take(3)


def test_a_norm_that_returns_the_residual_unsummed_is_seen():
    """As Command R: the layer's first element is the stream, and the norm hands the residual through."""

    class Through(torch.nn.Module):
        def forward(self, hidden, residual=None):
            return hidden / 2, residual

    decoder = decoder_with(SumsInside, Through(), paired=True)
    capture = _Capture(causal(decoder), [0])
    capture.reset()
    with torch.no_grad():
        decoder(torch.tensor([1, 2, 3]))
    with pytest.raises(RuntimeError, match="not the residual stream"):
        capture.take(3)
