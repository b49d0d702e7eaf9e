"""The one place that converts layer ids: speculators' and vLLM's conventions are one apart.

speculators 0.3 and 0.4 call the state *after* decoder layer k "k" (``layer_ids``). vLLM's EAGLE-3
support, and speculators from 0.5, call it "k + 1", the input of layer k + 1 (``vllm_layer_ids``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .drift import UsageError

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


def check_layer_ids(layer_ids: Sequence[int], num_layers: int) -> None:
    """Refuse layers from which no draft can be trained or served.

    Args:
        layer_ids: In speculators' convention.
        num_layers: Number of decoder layers of the verifier.

    Raises:
        UsageError: Not four layers, not ascending, out of range, or the last one is not the
            verifier's last layer: ``Eagle3DraftModel`` takes three input states, vLLM collects them
            in ascending order, and the trainer reads its targets from the last state.
    """
    ids = list(layer_ids)
    if len(ids) == 4 and ascend_to_last(ids, num_layers):
        return
    raise UsageError(
        f"Layers must be four ascending ids that end with the last layer, {num_layers - 1}.",
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
