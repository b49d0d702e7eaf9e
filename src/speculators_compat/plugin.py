"""Entry point of the group ``vllm.general_plugins``: vLLM calls it in every one of its processes.

It only imports the package, which waits for speculators to be imported: a vLLM process that never imports speculators
is left exactly as it was. Loading order: docs.vllm.ai, "Plugin System" (design/plugin_system).
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Activate the shim in this process."""
    import speculators_compat  # noqa: F401  (importing it activates it)
