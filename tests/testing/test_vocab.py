"""The draft's vocabulary beside the real speculators: coverage, tokens that end a turn, stale counts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support import shim

from speculators_compat import UsageError
from speculators_compat.pipeline import prepare, vocab
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.pipeline.summary import read_step
from speculators_compat.testing import make_kimi_k25
from speculators_compat.testing.tokenizers import kimi_special_ids

pytestmark = pytest.mark.engine

# No row holds a token that ends a turn: as in data that was tokenised elsewhere, or cut.
ROWS = [{"input_ids": [5, *range(10, 10 + n)], "loss_mask": [0] + [1] * n} for n in (20, 30, 40)]


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    return make_kimi_k25(tmp_path_factory.mktemp("vocab") / "kimi", num_hidden_layers=7)


def config(verifier, folder, size: int, rows=ROWS) -> RunConfig:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunConfig.model_validate(
        {
            "model": str(verifier),
            "output": str(folder / "run"),
            "trust_remote_code": True,
            "prepare": {"data": str(data), "num_proc": 1},
            "vocab": {"draft_vocab_size": size},
        }
    )


def build(run: RunConfig) -> tuple[dict, set[int]]:
    """The step's report, and the target ids that the draft can propose."""
    with shim():
        prepare.run(run)
        vocab.run(run)
    d2t = np.load(run.vocab_dir / "d2t.npy")
    chosen = set((np.arange(len(d2t)) + d2t).tolist())
    assert chosen == set(np.load(run.vocab_dir / "t2d.npy").nonzero()[0].tolist())
    return read_step(run, "vocab"), chosen


def ends() -> set[int]:
    ids = kimi_special_ids(768)
    return {ids["<|im_end|>"], ids["[EOS]"]}


def test_all_observed_tokens_and_the_ends_of_turns_are_in(verifier, tmp_path):
    report, chosen = build(config(verifier, tmp_path, 64))
    assert report["coverage"] == 1.0
    assert report["trainable_tokens"] == 90
    assert set(report["turn_end_tokens"]) == ends()
    assert set(range(10, 50)) | ends() <= chosen


def test_a_small_vocabulary_keeps_the_ends_and_the_most_frequent(verifier, tmp_path):
    report, chosen = build(config(verifier, tmp_path, 12))
    assert ends() < chosen
    assert chosen - ends() <= set(range(10, 30))  # those that all three rows have
    assert report["coverage"] == pytest.approx(10 * 3 / 90)


def test_counts_of_other_data_are_not_used_again(verifier, tmp_path):
    run = config(verifier, tmp_path, 64)
    run.vocab_dir.mkdir(parents=True)
    import torch

    torch.save({600: 5}, run.vocab_dir / "token_freq.pt")
    report, _ = build(run)
    assert report["trainable_tokens"] == 90
    assert 600 not in torch.load(run.vocab_dir / "token_freq.pt", weights_only=True)


def test_a_draft_vocabulary_larger_than_the_verifiers_is_refused(verifier, tmp_path):
    with shim(), pytest.raises(UsageError, match="draft_vocab_size 769 of 768 tokens"):
        prepare.run(config(verifier, tmp_path, 769))


def test_thinking_can_be_left_out_of_the_mask(verifier, tmp_path):
    ids = kimi_special_ids(768)
    row = {"input_ids": [5, ids["<think>"], 11, ids["</think>"], 12, 13], "loss_mask": [0, 1, 1, 1, 1, 1]}
    run = config(verifier, tmp_path, 64, [row])
    run = run.model_copy(update={"prepare": run.prepare.model_copy(update={"thinking": "mask"})})
    report, _ = build(run)
    assert report["trainable_tokens"] == 2
