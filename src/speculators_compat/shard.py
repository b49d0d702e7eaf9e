"""One of several engines' part of a data set: disjoint, in the same folder, whatever ends when."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .drift import UsageError

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """Every ``count``-th sample, from ``index`` on: the parts are alike in length and kind of samples.

    Attributes:
        index: 0 to ``count`` - 1, as ranks are counted.
        count: Number of parts.
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``.

        Raises:
            UsageError: Anything else, or I is not one of 0 to N - 1.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not int(found[1]) < int(found[2]):
            raise UsageError(
                "--shard takes I/N, part I of N, counted from 0.", repr(text), "For two engines: 0/2 and 1/2."
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}-of-{self.count}"

    def owns(self, sample: int) -> bool:
        """Whether a sample belongs to this part."""
        return sample % self.count == self.index
