"""Acceptance of each head, and whether one head is clearly above another."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["clearly_above", "describe", "identical_share"]

#: Smallest difference of mean acceptance length that counts, however many drafts were counted.
MARGIN = 0.1
#: And it must be this many standard errors: fewer drafts need a larger difference.
STANDARD_ERRORS = 3.0


def describe(result: dict[str, Any]) -> dict[str, Any]:
    """Rates from one engine's counters.

    Args:
        result: Counters as :func:`speculators_compat.serve_check.engine.accepted` returns them.

    Returns:
        ``acceptance_per_position`` (share of drafts whose first i tokens were all accepted, as vLLM counts it),
        ``mean_acceptance_length`` (tokens a step, the verifier's own included: 1 + accepted / drafts),
        ``standard_error`` of it, and the counters themselves.

    Raises:
        ValueError: No draft was counted.
    """
    drafts, counts = result["drafts"], result["accepted_per_position"]
    if not drafts:
        raise ValueError("vLLM counted no draft: the answers were too short, or the speculator did not run")
    rates = [count / drafts for count in counts]
    mean = result["accepted_tokens"] / drafts
    # The counts per position give the whole distribution: E[n^2] = sum of (2 i + 1) P(n > i).
    variance = sum((2 * position + 1) * rate for position, rate in enumerate(rates)) - mean**2
    return {
        "acceptance_per_position": [round(rate, 4) for rate in rates],
        "mean_acceptance_length": round(1 + mean, 4),
        "standard_error": round(math.sqrt(max(variance, 0.0) / drafts), 5),
        "drafts": drafts,
        "draft_tokens": result["draft_tokens"],
        "accepted_tokens": result["accepted_tokens"],
        "output_tokens": sum(len(answer) for answer in result["outputs"]),
        "seconds": result["seconds"],
    }


def clearly_above(head: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether one head's mean acceptance length is above another's by more than chance and more than a trifle."""
    difference = head["mean_acceptance_length"] - other["mean_acceptance_length"]
    error = math.hypot(head["standard_error"], other["standard_error"])
    return bool(difference >= max(MARGIN, STANDARD_ERRORS * error))


def identical_share(outputs: list[list[int]], reference: list[list[int]]) -> float:
    """Share of answers that are the same, token by token."""
    same = sum(answer == expected for answer, expected in zip(outputs, reference, strict=True))
    return round(same / len(reference), 4)
