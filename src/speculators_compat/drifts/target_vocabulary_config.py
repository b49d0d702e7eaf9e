"""From 0.5 on the size of the target vocabulary is read from the verifier's config without a word about remote code."""

from __future__ import annotations

from ..drift import Drift, substitute
from ._text_configs import TextConfigs

VOCABULARY = "speculators.train.vocab_mapping"

DRIFT = Drift(
    id="target_vocabulary_config",
    title="The target vocabulary's size is its language model's, read as data",
    symptom="ValueError: The repository ... contains custom code which must be executed to correctly load the model.",
    call_site="train/vocab_mapping.py:get_target_vocab_size",
    speculators=">=0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.7.0/src/speculators/train/vocab_mapping.py#L112",
    tripwire=f"{VOCABULARY}:get_target_vocab_size",
    sites=(substitute(f"{VOCABULARY}:AutoConfig", TextConfigs),),
)
