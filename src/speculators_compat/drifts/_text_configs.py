"""A stand-in for ``AutoConfig`` in modules that want a verifier's language model and allow no remote code."""

from __future__ import annotations

from typing import Any

from ..verifier import text_config


class TextConfigs:
    """``AutoConfig`` whose ``from_pretrained`` gives the config of the language model, read as data.

    Args:
        auto_config: The original; everything else is its own.
    """

    def __init__(self, auto_config: Any) -> None:
        self._auto_config = auto_config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._auto_config, name)

    def from_pretrained(self, name_or_path: str, **kwargs: Any) -> Any:
        """Read a config; see :func:`speculators_compat.verifier.text_config`."""
        return text_config(name_or_path, self._auto_config.from_pretrained, **kwargs)
