"""The training command of 0.8 and later takes a verifier's language model from ``text_config`` alone."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._text_configs import TextConfigs

COMMAND = "speculators.train.cli"

DRIFT = Drift(
    id="command_verifier_config",
    title="The training command reads the verifier's config as data, from its language model",
    symptom="ValueError: The repository ... contains custom code which must be executed to correctly load the model.",
    call_site="train/cli.py:create_transformer_layer_config",
    speculators=">=0.8",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/main/src/speculators/train/cli.py",
    tripwire=f"{COMMAND}:main",
    sites=(substitute(f"{COMMAND}:AutoConfig", TextConfigs),),
)
