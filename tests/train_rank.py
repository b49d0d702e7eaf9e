"""One process of a training run, for tests that start it alone or twice through torchrun.

    python tests/train_rank.py VERIFIER SAMPLES OUT TOKENS_PER_BATCH

Rank 0 writes ``OUT/run.json``: the loss of every step, and the weights that the layers' norms started from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import speculators_compat  # noqa: F401 (the shim, before speculators)
from tests.drafts import Losses, draft_model, trainer


def main(verifier: Path, samples: Path, out: Path, length: int) -> None:
    """Train for two epochs."""
    from speculators.train.utils import maybe_destroy_distributed, maybe_setup_distributed
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    from speculators_compat.verifier import text_config

    _, world_size, rank, _ = maybe_setup_distributed()
    draft = draft_model(verifier, text_config(str(verifier)))
    run = trainer(draft, samples, out / "checkpoints", 2, length=length, world_size=world_size, rank=rank)
    state = get_model_state_dict(run.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    norms = {name: tensor.tolist() for name, tensor in state.items() if "norm" in name}
    with Losses() as losses:
        run.run_training()
    if rank == 0:
        (out / "run.json").write_text(json.dumps({"losses": losses, "norms": norms}))
    maybe_destroy_distributed()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]))
