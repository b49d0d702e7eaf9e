"""From 0.5 on the verifier's layers are counted on a config that is read without a word about remote code."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._text_configs import TextConfigs
from ._training import TRAINER_INIT

DRIFT = Drift(
    id="verifier_layer_count",
    title="The verifier's layers are counted on its language model, read as data",
    symptom="ValueError: The repository ... contains custom code which must be executed to correctly load the model.",
    call_site="models/utils.py:get_verifier_config",
    speculators=">=0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/models/utils.py#L16",
    tripwire=TRAINER_INIT,
    sites=(substitute("speculators.models.utils:AutoConfig", TextConfigs),),
)
