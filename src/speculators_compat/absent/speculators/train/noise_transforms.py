"""Stands in for the module that speculators 0.9 removed (drift ``noise_transforms_module``) and says so."""

from speculators_compat.drift import RemovedNameError

raise RemovedNameError(
    "speculators removed train.noise_transforms after 0.8.1: its datasets take no transform any more. "
    "Train without noise, or with speculators 0.8.1."
)
