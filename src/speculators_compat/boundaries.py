"""Which tokens of a turn the verifier wrote, found from two renderings of the conversation.

speculators 0.8 and later make one sample of every assistant turn: what inference would be asked with (the conversation
before the turn, and the generation prompt), then what stands there once the turn has been given. Where the second
rendering goes on from the first, its further tokens are the verifier's own, the end of the turn included. Templates
for which it does not go on are of two kinds. Those whose generation prompt alone says something else than the turn
(a thinking block that is opened for the model) can be used from where the two part; those that change what came before
cannot, since the sample would not be what the verifier was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Render", "TurnRow", "UnstableTemplateError", "agreement", "turn_rows"]

#: Token ids of turns; the flag asks for the generation prompt after them.
Render = Callable[[Sequence[Mapping[str, Any]], bool], list[int]]


class UnstableTemplateError(ValueError):
    """The chat template changes earlier turns when a later one follows."""


@dataclass(frozen=True)
class TurnRow:
    """The sample of one assistant turn.

    Attributes:
        turn: Number of the turn, from 1 on.
        ids: Token ids of the conversation through this turn.
        start: Index of the first token that the verifier wrote.
    """

    turn: int
    ids: list[int]
    start: int

    @property
    def mask(self) -> list[int]:
        """One 0 or 1 for every id."""
        return [int(position >= self.start) for position in range(len(self.ids))]


def turn_rows(turns: Sequence[Mapping[str, Any]], render: Render, limit: int) -> tuple[list[TurnRow], list[int]]:
    """One sample for each assistant turn that answers something.

    Args:
        turns: Turns with ``role``.
        render: Gives the token ids of turns.
        limit: Longest sample in tokens. A turn whose context alone fills it is left out, and only that one: a later
            context can be shorter, where the template leaves earlier thoughts out. Samples are not cut.

    Returns:
        The samples, and the numbers of the turns that were left out.

    Raises:
        UnstableTemplateError: The template changes what came before a turn.
    """
    rows, left_out = [], []
    for before, turn in enumerate(turns):
        if turn["role"] != "assistant" or not before:  # a first turn answers nothing: it is context
            continue
        asked = render(turns[:before], True)
        if len(asked) >= limit:
            left_out.append(before + 1)
            continue
        told = render(turns[: before + 1], False)
        start = agreement(asked, told)
        if start < len(asked):
            history = render(turns[:before], False)
            if min(start, agreement(history, told)) < len(history):
                raise UnstableTemplateError(f"the chat template changes what came before turn {before + 1}")
        rows.append(TurnRow(before + 1, told, start))
    return rows, left_out


def agreement(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common.

    Args:
        first: Token ids.
        second: Token ids.
    """
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))
