"""Reads the arguments that a user hands on to ``vllm serve``, without vLLM's parser (importing it takes seconds)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..drift import UsageError

__all__ = ["Arguments"]

#: Short forms (engine/arg_utils.py).
SHORT = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "sc": "speculative-config"}


@dataclass(frozen=True)
class Arguments:
    """Options by their long name with dashes, as given: the last one counts, as for vLLM.

    Attributes:
        words: The arguments as they came.
    """

    words: tuple[str, ...] = ()
    options: dict[str, str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _read(self.words))

    def value(self, name: str) -> str | None:
        """The value of ``--name``; None where it is not given or is a switch."""
        return self.options.get(name)

    def switch(self, name: str) -> bool | None:
        """What a switch with a ``--no-`` form is set to; None where neither is given."""
        given = [option for option in self.options if option in {name, f"no-{name}"}]
        return None if not given else given[-1] == name

    def number(self, name: str, default: int) -> int:
        """The value of ``--name`` as a whole number.

        Raises:
            UsageError: It is not one.
        """
        value = self.options.get(name, str(default))
        try:
            return int(value or "")
        except ValueError:
            raise UsageError(f"--{name} takes a whole number.", repr(value), f"Say --{name} 1, for instance.") from None

    def has(self, name: str) -> bool:
        """Whether ``--name`` is given, or a part of it (``--name.part``)."""
        return any(option.partition(".")[0] == name for option in self.options)


def _read(words: tuple[str, ...]) -> dict[str, str | None]:
    options: dict[str, str | None] = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not _is_option(name):
            continue
        following = words[index + 1] if index + 1 < len(words) else None
        name = name.lstrip("-")
        name = SHORT.get(name, name.replace("_", "-"))
        options.pop(name, None)  # the order is that of the last mention
        options[name] = value if equals else None if following is None or _is_option(following) else following
    return options


def _is_option(word: str) -> bool:
    """``-1`` is a value."""
    return word.startswith("-") and not word.lstrip("-")[:1].isdigit() and word.strip("-") != ""
