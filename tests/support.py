"""Helpers shared by the tests: a clean Python process, and the shim with or without a drift."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

import speculators_compat
from speculators_compat import restored, versions
from speculators_compat.activation import DISABLE, is_active
from speculators_compat.drift import Drift


def run_python(
    code: str, env: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own; ``env`` is added to the environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@contextmanager
def shim(without: str = "") -> Iterator[None]:
    """The shim in this process until the block ends, ``without`` these drifts (comma-separated).

    Importing speculators and vLLM takes longer than most tests, so what is imported stays and the
    patches are undone and redone, as ``SPECULATORS_COMPAT_DISABLE`` does at start.
    """
    was_active = is_active()
    before = os.environ.get(DISABLE)
    speculators_compat.deactivate()
    os.environ[DISABLE] = without
    try:
        speculators_compat.activate()
        yield
    finally:
        speculators_compat.deactivate()
        if before is None:
            del os.environ[DISABLE]
        else:
            os.environ[DISABLE] = before
        if was_active:
            speculators_compat.activate()


def speculators_is(release_range: str) -> bool:
    """Whether the installed speculators is in a PEP 440 range; False if there is none."""
    found = versions.installed("speculators")
    return bool(versions.matches(found.version if found else "0", release_range))


def has_call_site(drift: Drift) -> bool:
    """Whether the installed speculators has a drift's call site, its own or in a file that is restored."""
    found = versions.installed("speculators")
    release = restored.release_at(drift.call_site, found.version if found else "0")
    return bool(versions.matches(release, drift.speculators))


def vllm_is(since: str | None, until: str | None) -> bool:
    """Whether the installed vLLM is in ``[since, until)``; False if there is none."""
    found = versions.installed("vllm")
    return bool(found and versions.in_range(found.version, since, until))


#: The trainer's parts have other signatures from 0.5 on, so that a drift of both has a test for each.
older_trainer = pytest.mark.skipif(not speculators_is("<0.5"), reason="the trainer of speculators up to 0.4")
newer_trainer = pytest.mark.skipif(not speculators_is(">=0.5"), reason="the trainers of speculators from 0.5 on")


def applies(drift: Drift) -> pytest.MarkDecorator:
    """Skip where the installed speculators does not have the drift's call site."""
    return pytest.mark.skipif(
        not has_call_site(drift), reason=f"speculators is not in {drift.speculators}: {drift.upstream}"
    )


def applies_here(drift: Drift) -> bool:
    """Whether the installed speculators and vLLM are in a drift's ranges."""
    return has_call_site(drift) and vllm_is(drift.since, drift.until)


def transformers_knows(model_type: str) -> bool:
    """Whether a model's config comes from transformers itself, so that it needs no remote code.

    Ask before the engine starts: vLLM registers a config class of its own over transformers', for the whole process.
    """
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING and CONFIG_MAPPING[model_type].__module__.startswith("transformers.")


#: Before, vLLM does not know the model, or builds its vision tower on a CUDA device.
KIMI_REASON = (
    "vLLM's CPU engine runs Kimi-K2.5 from 0.16 on: "
    "https://github.com/vllm-project/vllm/blob/v0.15.0/vllm/model_executor/models/kimi_k25.py#L323"
)


def kimi_runs() -> bool:
    """Whether the installed vLLM can run Kimi-K2.5 on a CPU."""
    return vllm_is("0.16.0", None)


def interruptible() -> None:
    """For ``preexec_fn``: a shell that starts tests in the background leaves SIGINT ignored for all they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
