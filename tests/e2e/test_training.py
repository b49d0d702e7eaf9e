"""A draft learns through upstream's own trainer on a CPU, and a run resumes."""

import pytest

from speculators_compat.testing import make_model
from speculators_compat.verifier import text_config
from tests.drafts import Losses, draft_model, trainer, write_samples
from tests.support import shim

pytestmark = pytest.mark.engine

EPOCHS = 3


@pytest.mark.parametrize("kind", ["llama", "kimi_k25"])
def test_loss_falls_and_training_resumes(tmp_path, kind):
    from safetensors.torch import load_file

    verifier = make_model(kind, tmp_path / kind)
    config = text_config(str(verifier))
    samples = write_samples(tmp_path / "samples", config)
    checkpoints = tmp_path / "checkpoints"

    def run(epochs: int, resume: bool) -> list[float]:
        draft = draft_model(verifier, config, config.vocab_size // 2)
        with Losses() as losses:
            trainer(draft, samples, checkpoints, epochs, resume).run_training()
        return losses

    with shim():
        first = run(EPOCHS, resume=False)
        resumed = run(EPOCHS + 1, resume=True)
    assert first[-1] < first[0] / 5
    assert sorted(path.name for path in checkpoints.iterdir()) == [str(epoch) for epoch in range(EPOCHS + 1)]
    # Weights and optimizer state are stored in bfloat16, so the curve goes on closely, not exactly.
    assert len(resumed) == len(first) // EPOCHS
    assert resumed[0] < first[0] / 5
    assert resumed[-1] < first[-1]
    saved = load_file(checkpoints / str(EPOCHS) / "model.safetensors")
    assert not [name for name in saved if "verifier" in name or "final_norm" in name]
    assert saved["lm_head.weight"].shape == (config.vocab_size // 2, config.hidden_size)
