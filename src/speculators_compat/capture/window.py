"""Which prompts go into the next step: full steps of whole prompts, and results that come nearly in order.

The oldest waiting prompt leads each step, so none waits for ever and a reader in input order holds few results back;
the rest of the step is filled with the longest prompts that fit, so the short ones are left to fill gaps.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from .prompts import Prompt

__all__ = ["Window"]

#: A step that is fuller than this share of its budget is not filled up with a part of a prompt.
FULL = 0.9


class Window:
    """Prompts that have been read and not yet been given to the scheduler.

    Args:
        prompts: Where they come from; read only as far as asked.
        budget: Tokens of a step.
        max_prompts: Prompts of a step.
    """

    def __init__(self, prompts: Iterator[Prompt], budget: int, max_prompts: int) -> None:
        self._source, self._budget, self._max_prompts = prompts, budget, max_prompts
        self._by_length: list[tuple[int, int]] = []  # (tokens, -index): of equal ones the oldest is the largest
        self._waiting: dict[int, Prompt] = {}  # by index, oldest first
        self.exhausted = False

    def __len__(self) -> int:
        return len(self._waiting)

    def fill(self, size: float) -> None:
        """Read until ``size`` prompts wait, or there are no more."""
        while not self.exhausted and len(self._waiting) < size:
            prompt = next(self._source, None)
            if prompt is None:
                self.exhausted = True
                return
            self._waiting[prompt.index] = prompt
            bisect.insort(self._by_length, (len(prompt.token_ids), -prompt.index))

    def take(self, tokens: int, prompts: int) -> list[Prompt]:
        """Take what completes a step.

        Args:
            tokens: Tokens that the scheduler holds already and will run first.
            prompts: Prompts that these belong to.

        Returns:
            Prompts in the order in which the scheduler should get them; the last one may be more than fits.
        """
        taken: list[Prompt] = []
        while self._waiting and prompts + len(taken) < self._max_prompts:
            space = self._budget - tokens
            prompt = self._pick(space, first=not taken)
            if prompt is None:
                if tokens >= FULL * self._budget:
                    break
                prompt = next(iter(self._waiting.values()))
            self._remove(prompt)
            taken.append(prompt)
            tokens += len(prompt.token_ids)
        return taken

    def _pick(self, space: int, first: bool) -> Prompt | None:
        """The oldest prompt for a step's first place, otherwise the longest; None if none fits."""
        oldest = next(iter(self._waiting.values()))
        tokens = len(oldest.token_ids)
        if first and (tokens <= space or tokens > self._budget):  # one that no step holds is cut anyway
            return oldest
        at = bisect.bisect_right(self._by_length, (space, 0)) - 1
        return None if at < 0 else self._waiting[-self._by_length[at][1]]

    def _remove(self, prompt: Prompt) -> None:
        del self._waiting[prompt.index]
        del self._by_length[bisect.bisect_left(self._by_length, (len(prompt.token_ids), -prompt.index))]
