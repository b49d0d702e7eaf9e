"""Bad input gets one clear error before the engine is touched; long prompts are never cut in silence."""

from __future__ import annotations

import pytest
import torch

from speculators_compat.capture.prompts import check_layer_ids, read_prompts
from speculators_compat.drift import UsageError

pytestmark = pytest.mark.default_pair


def read(token_ids, **changes):
    return read_prompts(token_ids, **{"vocab_size": 100, "max_tokens": 8, "overlong": "truncate", **changes})


@pytest.mark.parametrize(
    "batch",
    [
        [[1, 2, 3], [4, 5, 6]],
        torch.tensor([[1, 2, 3], [4, 5, 6]]),
        [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6], dtype=torch.int32)],
        ((1, 2, 3), (4, 5, 6)),
    ],
)
def test_every_form_that_upstream_takes(batch):
    assert [p.token_ids for p in read(batch)] == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([], "cannot be empty"),
        (torch.zeros((0, 4), dtype=torch.long), "cannot be empty"),
        ([[1], []], "prompt 1 is empty"),
        ([torch.zeros(0, dtype=torch.long)], "prompt 0 is empty"),
        ([[1, 100]], "100 in prompt 0 at position 1"),
        ([[1], [3, -1]], "-1 in prompt 1 at position 1"),
        ([[1.0, 2.0]], "whole numbers"),
        ([[True, False]], "whole numbers"),
        ([torch.tensor([0.5])], "whole numbers"),
        ([["a"]], "whole numbers"),
        ([[[1, 2]]], "flat list"),
        ([1, 2, 3], "flat list"),
        ([[1 << 70]], "whole numbers"),
        (torch.tensor([1, 2, 3]), "two dimensions"),
        ("text", "list of prompts"),
        (7, "list of prompts"),
    ],
)
def test_bad_input(batch, said):
    with pytest.raises(UsageError, match=said) as caught:
        read(batch)
    assert isinstance(caught.value, ValueError), "upstream raises ValueError for an empty batch"
    assert caught.value.required
    assert caught.value.found
    assert caught.value.way_out


def test_a_long_prompt_is_cut_and_counted_or_refused():
    short, long = read([[1] * 8, [2] * 11])
    assert (len(short.token_ids), short.truncated) == (8, 0)
    assert (len(long.token_ids), long.truncated) == (8, 3)
    with pytest.raises(UsageError, match="prompt 1 with 11"):
        read([[1] * 8, [2] * 11], overlong="error")


@pytest.mark.parametrize("ids", [[], [1, 1], [0, 2, 0], [1.0], ["1"], [True], 5, "12"])
def test_bad_layers(ids):
    with pytest.raises(UsageError, match="layer_ids"):
        check_layer_ids(ids)


@pytest.mark.parametrize("ids", [[3], [5, 0, 2], (1, 2), range(3), iter([4, 1]), torch.tensor([2, 0]).numpy()])
def test_good_layers(ids):
    assert all(type(i) is int for i in check_layer_ids(ids))


def test_no_layers_means_upstreams_default():
    assert check_layer_ids(None) is None
