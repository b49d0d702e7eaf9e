"""Prepared rows made by hand: what the extract step starts from, on every release and without the prepare step."""

from __future__ import annotations

from speculators_compat.pipeline import prepare
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.store import write_json
from speculators_compat.testing import random_prompts
from speculators_compat.verifier import text_config


def write_rows(config: RunConfig, count: int, longest: int = 130) -> list[list[int]]:
    """Put ``count`` rows of unequal lengths into a run folder, as the prepare step leaves them.

    Returns:
        Their token ids. Masks are 1 where the id is even.
    """
    from datasets import Dataset, Features, Sequence, Value

    lengths = [2 + (37 * index) % longest for index in range(count)]
    prompts = random_prompts(text_config(config.verifier).vocab_size, lengths, seed=count)
    ids = Sequence(Value("int64"))
    rows = Dataset.from_dict(
        {
            "input_ids": prompts,
            "loss_mask": [[int(token % 2 == 0) for token in prompt] for prompt in prompts],
            "seq_len": lengths,
        },
        features=Features({"input_ids": ids, "loss_mask": ids, "seq_len": Value("int64")}),
    )
    rows.set_format(type="torch")
    rows.save_to_disk(str(config.prepared_dir / "rows"))
    record = {"inputs": prepare._inputs(config), "fingerprint": prepare.fingerprint(rows)}
    write_json(config.prepared_dir / "prepared.json", record)
    return prompts
