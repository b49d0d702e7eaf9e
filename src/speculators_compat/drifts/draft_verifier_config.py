"""The draft cannot allow a verifier's remote config; 0.3.0 reads it on the wrapper."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._text_configs import TextConfigs
from ._training import CORE, DRAFT_INIT

DRIFT = Drift(
    id="draft_verifier_config",
    title="The verifier's config is read as data, from its language model",
    symptom=("ValueError: The repository ... contains custom code which must be executed to correctly load the model."),
    call_site="models/eagle3/core.py",
    speculators=">=0.3.0",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.4.0/src/speculators/models/eagle3/core.py#L265",
    tripwire=DRAFT_INIT,
    sites=(substitute(f"{CORE}:AutoConfig", TextConfigs),),
)
