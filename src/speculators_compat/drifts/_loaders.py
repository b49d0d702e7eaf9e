"""A loader class of transformers whose ``from_pretrained`` follows the generator's one trust option."""

from __future__ import annotations

from typing import Any

import wrapt

from ..capture import options


class TrustingLoader(wrapt.ObjectProxy):
    """``AutoTokenizer`` or ``AutoConfig``; everything but ``from_pretrained`` is the original's."""

    def from_pretrained(self, *args: Any, **kwargs: Any) -> Any:
        """Load with ``trust_remote_code`` as the generator under construction was told."""
        # An explicit False makes transformers raise instead of asking on the terminal.
        return self.__wrapped__.from_pretrained(
            *args, **{**kwargs, "trust_remote_code": options.current().trust_remote_code}
        )
