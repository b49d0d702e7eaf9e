"""The one place that converts layer ids: speculators' and vLLM's conventions are one apart.

speculators 0.3 and 0.4 call the state *after* decoder layer k "k" (``layer_ids``). vLLM's EAGLE-3
support, and speculators from 0.5, call it "k + 1", the input of layer k + 1 (``vllm_layer_ids``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .drift import UsageError
from .sample_files import PtFiles, installed_form

__all__ = ["ascend_to_last", "check_layer_ids", "default_layer_ids", "from_vllm_layer_ids", "to_vllm_layer_ids"]


def default_layer_ids(num_layers: int) -> list[int]:
    """Upstream's rule: three layers for the draft's input and the last one for its target.

    Source: ``VllmHiddenStatesGenerator.__init__`` of speculators 0.3.0 and 0.4.0.1.

    Args:
        num_layers: Number of decoder layers of the verifier (61 gives 2, 30, 58, 60).

    Returns:
        ``layer_ids`` in speculators' convention. Below seven layers the rule names a layer twice,
        which :func:`check_layer_ids` refuses.
    """
    return [2, num_layers // 2, num_layers - 3, num_layers - 1]


def check_layer_ids(layer_ids: Sequence[int], num_layers: int, form: str | None = None) -> None:
    """Refuse layers from which no draft can be trained or served.

    Args:
        layer_ids: In speculators' convention.
        num_layers: Number of decoder layers of the verifier.
        form: Of the samples, as the trainer takes them; None: that of the installed speculators.

    Raises:
        UsageError: Not ascending, out of range, or the last one is not the verifier's last layer: vLLM collects states
            in ascending order, and every trainer reads its targets from the last of them. Or their number is none that
            the trainer takes: four on speculators 0.3 and 0.4, whose ``fc`` is made for three input states
            (https://github.com/vllm-project/speculators/blob/v0.4.0.1/src/speculators/models/eagle3/core.py); two or
            more from 0.5 on.
    """
    ids = list(layer_ids)
    four = (form or installed_form()) == PtFiles.form
    number, why = (
        ("four", ": the fc of speculators 0.3 and 0.4 takes three input states") if four else ("two or more", "")
    )
    if (len(ids) == 4 if four else len(ids) >= 2) and ascend_to_last(ids, num_layers):
        return
    raise UsageError(
        f"Layers must be {number} ascending ids that end with the last layer, {num_layers - 1}{why}.",
        f"{ids} for a verifier with {num_layers} layers",
        "Set layer_ids: the state after layer k is k; upstream's rule needs 7 layers or more.",
    )


def ascend_to_last(layer_ids: Sequence[int], num_layers: int) -> bool:
    """Whether layers ascend within a verifier of ``num_layers`` layers and end with its last one.

    Args:
        layer_ids: In speculators' convention.
        num_layers: Number of decoder layers of the verifier.
    """
    ascending = all(low < high for low, high in itertools.pairwise(layer_ids))
    return bool(layer_ids) and ascending and layer_ids[0] >= 0 and layer_ids[-1] == num_layers - 1


def to_vllm_layer_ids(layer_ids: Sequence[int]) -> list[int]:
    """Convert speculators' layer ids into vLLM's: after layer k is before layer k + 1.

    Args:
        layer_ids: In speculators' convention, for instance ``[2, 30, 58]``.

    Returns:
        ``vllm_layer_ids``, for instance ``[3, 31, 59]``.
    """
    return [layer_id + 1 for layer_id in layer_ids]


def from_vllm_layer_ids(vllm_layer_ids: Sequence[int]) -> list[int]:
    """Convert vLLM's layer ids into speculators' (0.3 and 0.4); see :func:`to_vllm_layer_ids`."""
    return [layer_id - 1 for layer_id in vllm_layer_ids]
