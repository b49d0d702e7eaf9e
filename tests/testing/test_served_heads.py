"""The untrained head that serve-check compares with."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.served_drafts import CHOSEN, HIDDEN, VOCAB, draft_json

from speculators_compat.serve_check.draft import read_draft, write_untrained

pytestmark = pytest.mark.default_pair


def trained(folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(draft_json(folder)))
    tensors = {
        "d2t": torch.tensor(CHOSEN) - torch.arange(len(CHOSEN)),
        "t2d": torch.isin(torch.arange(VOCAB), torch.tensor(CHOSEN)),
        "embed_tokens.weight": torch.randn(VOCAB, HIDDEN).bfloat16(),
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN).bfloat16(),
        "norm.weight": torch.full((HIDDEN,), 3.0).bfloat16(),
        "lm_head.weight": torch.randn(len(CHOSEN), HIDDEN).bfloat16(),
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return read_draft(folder), tensors


def test_only_what_training_changes_is_drawn_anew(tmp_path):
    draft, tensors = trained(tmp_path / "trained")
    for name in ("one", "other"):
        write_untrained(draft, tmp_path / name, seed=5 if name == "one" else 6)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert {name: (value.shape, value.dtype) for name, value in one.items()} == {
        name: (value.shape, value.dtype) for name, value in tensors.items()
    }
    for name in ("d2t", "t2d", "embed_tokens.weight"):
        assert torch.equal(one[name], tensors[name])
    for name in ("fc.weight", "lm_head.weight"):
        assert not torch.equal(one[name], tensors[name])
        assert not torch.equal(one[name], other[name])
        assert float(one[name].float().std()) == pytest.approx(0.02, rel=0.5)
    assert torch.equal(one["norm.weight"], torch.ones(HIDDEN).bfloat16())
    assert read_draft(tmp_path / "one").config == draft.config


def test_prompts_of_a_run_are_the_rows_that_training_held_out(tmp_path):
    from datasets import Dataset
    from tests.served_drafts import write_verifier

    from speculators_compat.pipeline.train import split
    from speculators_compat.serve_check.prompts import read_prompts
    from speculators_compat.serve_check.verifier import read_verifier

    rows = {
        "input_ids": [[index, index + 1, index + 2] for index in range(10)],
        "loss_mask": [[0, 0, 1]] * 9 + [[1, 1, 1]],
    }
    Dataset.from_dict(rows).save_to_disk(str(tmp_path / "run" / "prepared" / "rows"))
    verifier = read_verifier(str(write_verifier(tmp_path / "verifier")))
    everything = read_prompts(None, tmp_path / "run", verifier, 99, 4, False)
    assert everything.token_ids == [[index, index + 1] for index in range(9)]
    assert (everything.held_out, everything.left_out) == (False, 1)
    (tmp_path / "run" / "checkpoints").mkdir()
    record = {"train_ratio": 0.7, "seed": 3}
    (tmp_path / "run" / "checkpoints" / "training.json").write_text(json.dumps(record))
    held_out = read_prompts(None, tmp_path / "run", verifier, 99, 4, False)
    expected = sorted(index for index in split(list(range(10)), 0.7, 3)[1] if index != 9)
    assert [ids[0] for ids in held_out.token_ids] == expected
    assert held_out.held_out is True
