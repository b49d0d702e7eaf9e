import json

import pytest

from speculators_compat.drifts.transformers_config_class import DRIFT
from tests.support import run_python

pytestmark = pytest.mark.engine

CODE = """
import json
import speculators_compat, speculators
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig
config = Eagle3SpeculatorConfig(
    transformer_layer_config=LlamaConfig(hidden_size=64),
    draft_vocab_size=96,
    speculators_config=SpeculatorsConfig(
        algorithm="eagle3",
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path="somewhere", architectures=["LlamaForCausalLM"]),
    ),
)
config.save_pretrained({folder!r})
again = Eagle3SpeculatorConfig.from_pretrained({folder!r})
print("SAVED", json.dumps([again.draft_vocab_size, again.transformer_layer_config.hidden_size, again.architectures]))
"""


def test_symptom_and_fix(states, tmp_path):
    """Bound to transformers: building a config fails without exactly where the probe says that the fix is needed."""
    code = CODE.format(folder=str(tmp_path / "config"))
    broken = run_python(code, {"SPECULATORS_COMPAT_DISABLE": DRIFT.id})
    assert (DRIFT.symptom in broken.stderr) is (states[DRIFT.id] == "applied")
    done = run_python(code)
    line = next((line for line in done.stdout.splitlines() if line.startswith("SAVED ")), None)
    assert line, done.stderr[-3000:]
    assert json.loads(line.removeprefix("SAVED ")) == [96, 64, ["Eagle3Speculator"]]
    assert json.loads((tmp_path / "config" / "config.json").read_text())["speculators_model_type"] == "eagle3"
