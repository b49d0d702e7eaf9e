"""The generator's corrected loop: every prompt prefilled exactly once, whatever the scheduler does.

It is written against the calls of vLLM 0.11 (one ``execute_model`` that returns the step's ``ModelRunnerOutput``);
drifts adapt later executors to that. Differences from upstream's loops, each of which can be silently wrong or fail:
a request is finished as soon as its prompt is done (not all at the end, which starves the 33rd prompt; not after its
first chunk, which loses the rest), and the workers are told in a last, empty step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..drift import UsageError
from .ledger import CaptureError, Ledger, Step
from .prompts import Prompt

__all__ = ["prefill"]

log = logging.getLogger("speculators_compat")


def prefill(engine: Any, requests: Mapping[str, Any], prompts: Mapping[str, Prompt], num_layers: int) -> Ledger:
    """Prefill a call's requests and collect their states.

    Args:
        engine: Has ``scheduler``, ``executor`` and ``abort`` (a ``RequestStatus``).
        requests: vLLM requests by id.
        prompts: The prompt of each id.
        num_layers: Captured layers.

    Returns:
        The complete ledger.

    Raises:
        UsageError: The KV cache cannot hold a prompt.
        CaptureError: Rows do not add up.
        RuntimeError: A worker failed.
    """
    ledger = Ledger(prompts, num_layers)
    engine.executor.collective_rpc("_reset_capture")
    for request in requests.values():
        engine.scheduler.add_request(request)
    try:
        while ledger.unfinished:
            _step(engine, ledger, prompts)
    except UsageError:
        # The workers are in step: what is left of this call is taken back, and the next call starts clean.
        _finish(engine, ledger.unfinished)
        _flush(engine)
        raise
    _flush(engine)
    return ledger


def _step(engine: Any, ledger: Ledger, prompts: Mapping[str, Prompt]) -> None:
    scheduled = engine.scheduler.schedule()
    if scheduled.total_num_scheduled_tokens == 0:
        # schedule() has handed out the ids that ended since the last step: they must still reach the workers.
        _tell_finished(engine, scheduled)
        raise _starved(engine, ledger, prompts)
    output = engine.executor.execute_model(scheduled)
    step = Step(_order(output), dict(scheduled.num_scheduled_tokens), _starts(scheduled))
    replies = engine.executor.collective_rpc("_take_captured_states", args=(scheduled.total_num_scheduled_tokens,))
    captured = [reply for reply in replies if reply is not None]
    if len(captured) != 1:
        raise CaptureError(f"one worker must return states, {len(captured)} of {len(replies)} did")
    _finish(engine, ledger.place(step, captured[0]))


def _order(output: Any) -> list[str]:
    order = getattr(output, "req_ids", None)
    if order is None:
        raise CaptureError(
            f"execute_model returned {type(output).__name__} without req_ids, so rows cannot be told apart "
            "(is the drift two_phase_execution switched off?)"
        )
    return list(order)


def _starts(scheduled: Any) -> dict[str, int]:
    """Tokens already computed of each scheduled request, as the workers were told."""
    cached = scheduled.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    starts.update({new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs})
    return starts


def _finish(engine: Any, request_ids: list[str]) -> None:
    if request_ids:
        engine.scheduler.finish_requests(request_ids, engine.abort)


def _flush(engine: Any) -> None:
    """Tell the workers which requests ended; without it they keep their state until the next call, or forever."""
    scheduled = engine.scheduler.schedule()
    if scheduled.total_num_scheduled_tokens:
        raise CaptureError("a finished call still has tokens scheduled")
    _tell_finished(engine, scheduled)


def _tell_finished(engine: Any, scheduled: Any) -> None:
    """Run an empty step for the sake of the finished ids that it carries."""
    if scheduled.finished_req_ids:
        engine.executor.execute_model(scheduled)


def _starved(engine: Any, ledger: Ledger, prompts: Mapping[str, Prompt]) -> UsageError:
    longest = max(len(prompts[request_id].token_ids) for request_id in ledger.unfinished)
    cache = engine.scheduler.vllm_config.cache_config
    blocks, size = cache.num_gpu_blocks, cache.block_size
    return UsageError(
        f"The KV cache must hold a whole prompt: {longest} tokens need {-(-longest // size) + 1} blocks of {size}.",
        f"{blocks} blocks ({len(ledger.unfinished)} prompts unfinished)",
        "Raise gpu_memory_utilization (on a CPU: VLLM_CPU_KVCACHE_SPACE) or lower max_model_len.",
    )
