"""speculators 0.5 and 0.6 record the draft layer's architectures, of which there are none, as the verifier's."""

from __future__ import annotations

from typing import Any

from ..drift import Drift, wrap
from ._training import TRAINER_INIT


def _of_the_checkpoint(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = wrapped(*args, **kwargs)
    if made.architectures or not made.name_or_path:
        return made
    from transformers import PretrainedConfig

    try:
        described, _ = PretrainedConfig.get_config_dict(made.name_or_path)
    except (OSError, ValueError):  # a name that cannot be read here stays without, as upstream has it
        return made
    return made.model_copy(update={"architectures": described.get("architectures") or []})


DRIFT = Drift(
    id="verifier_architectures",
    title="A draft's config names the verifier's architecture",
    symptom="no error: verifier.architectures is empty in the saved config",
    silent=True,
    call_site="config.py:VerifierConfig.from_config",
    speculators=">=0.5,<0.7",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/models/eagle3/core.py#L451",
    tripwire=TRAINER_INIT,
    sites=(wrap("speculators.config:VerifierConfig.from_config", _of_the_checkpoint),),
)
