"""Two processes: tests/e2e/test_distributed_training.py. Here, that upstream's emptying loop sees no module."""

from speculators_compat.drifts.sharded_layer_weights import _no_module_is


def test_nothing_is_an_instance():
    class Module:
        pass

    nothing = _no_module_is(Module)
    assert not isinstance(Module(), nothing)
    assert not isinstance(3, nothing)
