"""vLLM renamed the decoders' embedding method; upstream's captured forward of 0.3.0 still calls the old name."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap

WORKER = "speculators.data_generation.custom_worker"


def _with_old_name(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    decoder = args[0]
    if not hasattr(decoder, "get_input_embeddings") and hasattr(decoder, "embed_input_ids"):
        # On the instance: other models in this process keep their class as it is.
        decoder.get_input_embeddings = decoder.embed_input_ids
    return wrapped(*args, **kwargs)


DRIFT = Drift(
    id="embed_input_ids",
    title="Upstream's own capture finds the renamed embedding method",
    symptom="AttributeError: 'LlamaModel' object has no attribute 'get_input_embeddings'",
    call_site="data_generation/custom_worker.py:_patched_forward",
    speculators=">=0.3.0,<0.4",
    # The decoder's class is not known when the module is imported; the wrapper asks the decoder itself.
    since="0.11.1",
    until=None,
    upstream="https://github.com/vllm-project/vllm/blob/v0.11.1/vllm/model_executor/models/llama.py#L427",
    process="worker",
    tripwire=f"{WORKER}:_patched_forward",
    sites=(wrap(f"{WORKER}:_patched_forward", _with_old_name),),
)
