"""The symptom needs no GPU: Dynamo alone traces the launches, and nothing runs them."""

import pytest

from speculators_compat.activation import outcomes
from speculators_compat.drifts.compiled_loss_configs import DRIFT
from tests.support import applies, shim

pytestmark = [pytest.mark.engine, applies(DRIFT)]


@pytest.fixture
def launches(monkeypatch):
    """Kernel launches that are traced in a loss and its gradient, as if there were a GPU."""
    import torch

    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)

    def trace() -> int:
        from speculators.losses import fused

        found = []

        def backend(graph, inputs):
            for module in graph.modules():
                for node in getattr(getattr(module, "graph", None), "nodes", ()):
                    found.extend([node] if "triton" in str(node.target) else [])
            raise KeyboardInterrupt  # traced: what follows would run the kernels

        def loss(logits, targets):
            return sum(fused.fused_kl_div_loss(logits, targets).sum() for _ in range(2))

        torch._dynamo.reset()
        logits = torch.randn(1, 4, 32, requires_grad=True)
        with pytest.raises(KeyboardInterrupt):
            torch.compile(loss, backend=backend)(logits, torch.randn(1, 4, 32))
        return len(found)

    return trace


def test_symptom_without_and_traced_with(launches):
    with shim():
        import speculators.losses.fused  # noqa: F401

        needed = next(item.state.value for item in outcomes() if item.drift.id == DRIFT.id) == "applied"
    if needed:
        with shim(without=DRIFT.id), pytest.raises(Exception, match=r"length=\d+\) is already tracked for mutation"):
            launches()
    with shim():
        assert launches() >= 2


def test_the_tunings_are_what_they_were():
    with shim(without=DRIFT.id):
        from speculators.losses import fused

        before = fused.loss_forward_kernel.configs
        with shim():
            ours = fused.loss_forward_kernel
            assert isinstance(ours, type(ours).__mro__[1])
            assert [str(config) for config in ours.configs] == [str(config) for config in before]
