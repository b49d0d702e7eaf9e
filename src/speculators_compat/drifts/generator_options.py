"""The generator takes no dtype, trust_remote_code, limit_mm_per_prompt, and cannot be closed."""

from __future__ import annotations

from typing import Any

from ..calls import accepts
from ..capture import options
from ..drift import Drift, supply, wrap
from ._generator import GENERATOR

CLASS = f"{GENERATOR}:VllmHiddenStatesGenerator"


def _construct(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    from ..capture.generator import construct

    construct(wrapped, instance, args, kwargs)


def _checked_layers(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from ..capture.prompts import check_layer_ids

    # By now upstream has filled in its default, which names a layer twice where the verifier has fewer than 7.
    check_layer_ids(instance.layer_ids)
    return wrapped(*args, **kwargs)


def _model_config(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    chosen = options.current()
    limits = chosen.limit_mm_per_prompt
    if limits is None:
        # Prompts are token ids: no picture can ever come, so no tower is loaded or profiled for it. Names that a model
        # does not have are ignored (vllm/config/multimodal.py, BaseDummyOptions).
        limits = dict.fromkeys(("image", "video", "audio", "vision_chunk"), 0)
    kwargs = {**kwargs, "dtype": chosen.dtype, "trust_remote_code": chosen.trust_remote_code}
    if accepts(wrapped, "limit_mm_per_prompt"):
        kwargs["limit_mm_per_prompt"] = dict(limits)
    return wrapped(*args, **kwargs)


def _scheduler_config(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    budget = options.current().max_num_batched_tokens
    if budget is not None:
        kwargs = {**kwargs, "max_num_batched_tokens": budget}
    return wrapped(*args, **kwargs)


def _method(name: str) -> Any:
    def make(missing: Any) -> Any:
        from ..capture import generator

        return getattr(generator, name)

    return make


DRIFT = Drift(
    id="generator_options",
    title="The generator takes dtype, trust_remote_code, limit_mm_per_prompt and overlong, and can be closed",
    symptom="TypeError: VllmHiddenStatesGenerator.__init__() got an unexpected keyword argument 'dtype'",
    call_site="data_generation/vllm_hidden_states_generator.py:__init__",
    speculators=">=0.3.0,<0.5",
    since="0.11.0",
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.3.0/src/speculators/data_generation/vllm_hidden_states_generator.py",
    sites=(
        wrap(f"{CLASS}.__init__", _construct),
        wrap(f"{CLASS}._create_vllm_config", _checked_layers),
        wrap(f"{GENERATOR}:ModelConfig", _model_config),
        wrap(f"{GENERATOR}:SchedulerConfig", _scheduler_config),
        supply(f"{CLASS}.close", _method("close")),
        supply(f"{CLASS}.__enter__", _method("enter")),
        supply(f"{CLASS}.__exit__", _method("leave")),
    ),
)
