"""Teaching a tiny checkpoint a small language, so that a draft has something to predict."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculators_compat.testing.checkpoint import read_tensors, require, write_tensors
from speculators_compat.testing.kimi_k25 import TEXT_PREFIX
from speculators_compat.testing.reference import load_reference_model

if TYPE_CHECKING:
    import torch

__all__ = ["TrainingResult", "train_verifier"]

#: Share of the rows that accuracy is measured on and that no step sees.
HELD_OUT = 0.1
IGNORED = -100


@dataclass(frozen=True)
class TrainingResult:
    """How well the model has learnt.

    Attributes:
        loss: Mean loss of the last ten steps, in nats a token.
        accuracy: Share of the answers' tokens that greedy decoding would get right, on rows held out.
        steps: Steps taken.
    """

    loss: float
    accuracy: float
    steps: int


def train_verifier(
    folder: str | Path,
    rows: Sequence[Mapping[str, Sequence[int]]],
    *,
    steps: int = 300,
    batch_size: int = 16,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> TrainingResult:
    """Train a tiny checkpoint's language model in float32 on the CPU and write it back under the same names.

    A routed model keeps its routing: routers stay as they are, and so does the part of the residual stream that they
    read (see ``weights.py``), so that no rounding flips an expert afterwards either.

    Args:
        folder: Checkpoint of ``make_model`` that transformers has an architecture for.
        rows: ``input_ids`` and ``loss_mask`` (1 where accuracy counts); the loss is taken on every token.
        steps: Optimizer steps.
        batch_size: Rows in a step.
        learning_rate: Peak of a cosine schedule (AdamW).
        seed: Seed of the order of rows.

    Returns:
        Loss and accuracy.

    Raises:
        ValueError: There are fewer than two batches of rows, no step, or a tensor that the model does not have.
    """
    import torch

    path = Path(folder)
    require(steps >= 1, "a step or more", steps, "raise `steps`")
    require(len(rows) >= 2 * batch_size, f"{2 * batch_size} rows or more", len(rows), "write more of them")
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - a reproducible fixture, no secret
    held_out = max(1, int(len(shuffled) * HELD_OUT))
    checkpoint = read_tensors(path)
    model = load_reference_model(path).train()
    frozen = _frozen(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    losses = []
    for step, batch in zip(range(steps), _batches(shuffled[held_out:], batch_size, seed), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * _schedule(step, steps)
        optimizer.zero_grad(set_to_none=True)
        ids, labels = _padded(batch)
        loss = torch.nn.functional.cross_entropy(_logits(model, ids).flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        with torch.no_grad():
            for parameter, kept, values in frozen:
                parameter[kept] = values
        losses.append(float(loss.detach()))
    accuracy = _accuracy(model.eval(), shuffled[:held_out], batch_size)
    _write_back(path, checkpoint, model)
    recent = losses[-10:]
    return TrainingResult(sum(recent) / len(recent), accuracy, steps)


def _schedule(step: int, steps: int) -> float:
    """Share of the learning rate: up over a twentieth of the steps, then down along a cosine to a tenth."""
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _batches(rows: Sequence[Any], size: int, seed: int) -> Iterator[list[Any]]:
    """Endless batches, in a new order each time round."""
    generator = random.Random(seed + 1)  # noqa: S311 - a reproducible fixture, no secret
    while True:
        order = generator.sample(range(len(rows)), len(rows))
        for start in range(0, len(order) - size + 1, size):
            yield [rows[index] for index in order[start : start + size]]


def _padded(batch: Sequence[Mapping[str, Sequence[int]]], masked: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels, int64 ``[rows, tokens]``, padded behind; a causal model's earlier rows never see padding."""
    import torch

    longest = max(len(row["input_ids"]) for row in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    for index, row in enumerate(batch):
        tokens = torch.as_tensor(row["input_ids"])
        ids[index, : len(tokens)] = tokens
        counted = torch.as_tensor(row["loss_mask"]).bool() if masked else torch.ones(len(tokens), dtype=torch.bool)
        labels[index, : len(tokens)] = tokens.masked_fill(~counted, IGNORED)
    return ids, labels


def _logits(model: Any, ids: torch.Tensor) -> Any:
    """Logits ``[rows, tokens - 1, vocabulary]`` for the tokens after the first."""
    return model(input_ids=ids[:, :-1], use_cache=False).logits


def _accuracy(model: Any, rows: Sequence[Any], batch_size: int) -> float:
    import torch

    right = counted = 0
    with torch.inference_mode():
        for start in range(0, len(rows), batch_size):
            ids, labels = _padded(rows[start : start + batch_size], masked=True)
            wanted = labels[:, 1:]
            guessed = _logits(model, ids).argmax(-1)
            right += int(((guessed == wanted) & (wanted != IGNORED)).sum())
            counted += int((wanted != IGNORED).sum())
    return right / max(1, counted)


def _frozen(model: Any) -> list[tuple[Any, Any, Any]]:
    """Parameter, index and values of what a routed model must keep; routers are switched off right here."""
    routers = {name: value for name, value in model.named_parameters() if name.endswith("mlp.gate.weight")}
    if not routers:
        return []
    code = model.config.hidden_size // 8
    rows = slice(None, code)
    kept: list[tuple[Any, Any]] = []
    for name, parameter in model.named_parameters():
        if name in routers:
            parameter.requires_grad = False
        elif name.endswith("embed_tokens.weight"):
            kept.append((parameter, (slice(None), rows)))
        elif name.endswith(("o_proj.weight", "down_proj.weight", "post_attention_layernorm.weight")):
            kept.append((parameter, rows))
    return [(parameter, index, parameter[index].detach().clone()) for parameter, index in kept]


def _write_back(path: Path, checkpoint: Mapping[str, torch.Tensor], model: Any) -> None:
    """Replace the language model's tensors in the checkpoint's files; the rest stays."""
    state = model.state_dict()
    wrapped = any(name.startswith(TEXT_PREFIX) for name in checkpoint)
    tensors = {}
    for name, tensor in checkpoint.items():
        if wrapped and not name.startswith(TEXT_PREFIX):
            tensors[name] = tensor
            continue
        own = name.removeprefix(TEXT_PREFIX)
        known = own in state and state[own].shape == tensor.shape
        require(known, "transformers' model to have every tensor of the checkpoint", name, "use transformers 4.57")
        tensors[name] = state[own].to(tensor.dtype).contiguous()
    write_tensors(path, tensors, shards=len(list(path.glob("*.safetensors"))))
