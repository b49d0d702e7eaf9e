"""The manifest of a run's samples: what they are made from, as this configuration and machine have it."""

from __future__ import annotations

from .. import versions
from ..sample_files import installed_form
from ..store import Manifest
from .config import RunConfig
from .verifier import Verifier

__all__ = ["manifest_of"]


def manifest_of(config: RunConfig, verifier: Verifier, fingerprint: str, num_samples: int) -> Manifest:
    """The manifest that this run's samples have.

    Args:
        config: The run.
        verifier: Its verifier.
        fingerprint: Of the prepared rows.
        num_samples: Their number.
    """
    from .. import __version__

    installed = {name: versions.installed(name) for name in ("vllm", "speculators", "torch", "transformers")}
    found = {name: item.version for name, item in installed.items() if item}
    return Manifest(
        model=config.verifier,
        layer_ids=verifier.layer_ids,
        dtype=config.extract.dtype,
        dataset_fingerprint=fingerprint,
        num_samples=num_samples,
        seed=config.seed,
        seq_length=config.seq_length,
        versions={**found, "speculators_compat": __version__},
        form=installed_form(),
    )
