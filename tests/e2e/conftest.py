"""Real engines, one at a time, shared by every test that needs the same one."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from speculators_compat.testing import (
    make_model,
    random_prompts,
    reference_hidden_states,
    relative_error,
)

#: Tokens of one step; prompts of up to MAX_LEN - 1 tokens are chunked.
BUDGET = 128
MAX_LEN = 300
#: 1 token, one less and one more than a block of 16, past two blocks, past the budget, past twice the budget.
LENGTHS = (1, 299, 15, 17, 2, 130, 33, 16, 257, 1, 64, 128)


@dataclass
class Engine:
    """A generator, its model, and what transformers says about it."""

    kind: str
    directory: Path
    generator: Any
    layer_ids: list[int]
    references: dict[int, list[Any]] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        return self.generator.vllm_config.model_config.get_vocab_size()

    def prompts(self, count: int, seed: int) -> list[list[int]]:
        lengths = [LENGTHS[i % len(LENGTHS)] for i in range(count)]
        return random_prompts(self.vocab_size, lengths, seed)

    def worst_error(self, prompts: list[list[int]], results: list[dict[str, Any]]) -> float:
        """Largest relative L2 error of any layer of any prompt against transformers in float32."""
        reference = reference_hidden_states(self.directory, prompts, self.layer_ids)
        assert len(results) == len(prompts)
        worst = 0.0
        for prompt, result, expected in zip(prompts, results, reference, strict=True):
            assert result["input_ids"].tolist() == prompt
            assert len(result["hidden_states"]) == len(self.layer_ids)
            for found, wanted in zip(result["hidden_states"], expected, strict=True):
                assert found.shape == wanted.shape
                worst = max(worst, relative_error(found, wanted))
        return worst


def start(kind: str, directory: Path, layer_ids: list[int], **options: Any) -> Engine:
    """Start a generator on a tiny model, with the shim, as a user would."""
    from speculators.data_generation import VllmHiddenStatesGenerator

    import speculators_compat  # noqa: F401 - first, as the README says

    settings = {"max_model_len": MAX_LEN, "max_num_batched_tokens": BUDGET, "dtype": "float32", **options}
    return Engine(kind, directory, VllmHiddenStatesGenerator(str(directory), layer_ids, **settings), layer_ids)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folder of a tiny model by kind and options, made once."""
    made: dict[Any, Path] = {}

    def make(kind: str, **options: Any) -> Path:
        key = (kind, *sorted(options.items()))
        if key not in made:
            made[key] = make_model(kind, tmp_path_factory.mktemp("models") / kind, **options)
        return made[key]

    return make


@pytest.fixture(scope="session")
def engine(request, models):
    """The engine that ``request.param`` names: (kind, tensor parallel size)."""
    kind, tensor_parallel_size = request.param
    layer_ids = [3, 0, 5, 1]
    running = start(kind, models(kind, num_hidden_layers=6), layer_ids, tensor_parallel_size=tensor_parallel_size)
    yield running
    running.generator.close()
    gc.collect()
