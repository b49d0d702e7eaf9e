"""The one place that converts layer ids: speculators' and vLLM's conventions are one apart.

speculators 0.3 and 0.4 call the state *after* decoder layer k "k" (``layer_ids``). vLLM's EAGLE-3
support, and speculators from 0.5, call it "k + 1", the input of layer k + 1 (``vllm_layer_ids``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from . import versions
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


def check_layer_ids(
    layer_ids: Sequence[int], num_layers: int, form: str | None = None, algorithm: str | None = None
) -> None:
    """Refuse layers from which no draft can be trained or served.

    Args:
        layer_ids: In speculators' convention.
        num_layers: Number of decoder layers of the verifier.
        form: Of the samples, as the trainer takes them; None: that of the installed speculators.
        algorithm: Kind of draft that is to be trained; None: any.

    Raises:
        UsageError: Not ascending, out of range, or the last one is not the verifier's last layer: vLLM collects states
            in ascending order, and every trainer reads its targets from the last of them. Or their number is none that
            the trainer takes: four for EAGLE's kind before 0.7, whose ``fc`` is made for three input states
            (https://github.com/vllm-project/speculators/blob/v0.6.0/src/speculators/models/eagle3/core.py#L55); two or
            more for other drafts, and from 0.7 on.
    """
    ids = list(layer_ids)
    four = _takes_three_inputs(form or installed_form(), algorithm)
    number, why = ("four", f": the fc of {four} takes three input states") if four else ("two or more", "")
    if (len(ids) == 4 if four else len(ids) >= 2) and ascend_to_last(ids, num_layers):
        return
    raise UsageError(
        f"Layers must be {number} ascending ids that end with the last layer, {num_layers - 1}{why}.",
        f"{ids} for a verifier with {num_layers} layers",
        "Set layer_ids: the state after layer k is k; upstream's rule needs 7 layers or more.",
    )


def _takes_three_inputs(form: str, algorithm: str | None) -> str:
    """What makes its ``fc`` for three input states; an empty string where any number will do."""
    if form == PtFiles.form:
        return "speculators 0.3 and 0.4"
    found = versions.installed("speculators")
    if algorithm in {"eagle3", "peagle"} and found and versions.matches(found.version, "<0.7"):
        return f"{algorithm} in speculators {found.release}"
    return ""


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
