"""EAGLE-3 in plain PyTorch, from the paper's definition (arXiv 2503.01840), to measure drafts against.

One decoder layer reads, at position t, the verifier's states of three layers at t and the embedding of token t + 1, and
predicts the verifier's next distribution, that at t + 1. Training-time test repeats this: each further step reads the
step before in place of the verifier's states and the next token, attends to the first step's positions up to its own,
and to its own position in each step since.

Nothing of speculators is used here; parameter names are those of its checkpoints, so that one can be loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Sequence:
    """One sample. ``aux``: float32 [tokens, 3 x hidden]; ``logits``: the verifier's, [tokens, draft vocabulary]."""

    ids: torch.Tensor
    mask: torch.Tensor
    aux: torch.Tensor
    logits: torch.Tensor


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class Attention(nn.Module):
    """Multi-head attention with rotary positions over twice the hidden size."""

    def __init__(self, hidden: int, heads: int, head_dim: int, theta: float) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        for name in ("q_proj", "k_proj", "v_proj"):
            self.add_module(name, nn.Linear(2 * hidden, heads * head_dim, bias=False))
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)
        self.register_buffer("inv_freq", theta ** (-torch.arange(0, head_dim, 2).float() / head_dim), persistent=False)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, heads x head_dim] to [heads, tokens, head_dim]."""
        return x.view(len(x), self.heads, self.head_dim).transpose(0, 1)

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotary embedding of [heads, tokens, head_dim]."""
        angles = positions[:, None] * self.inv_freq[None]
        cos, sin = (torch.cat([f(angles)] * 2, dim=-1) for f in (torch.cos, torch.sin))
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer(nn.Module):
    """The draft's decoder layer."""

    def __init__(self, hidden: int, heads: int, head_dim: int, width: int, theta: float, eps: float) -> None:
        super().__init__()
        self.self_attn = Attention(hidden, heads, head_dim, theta)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, width, bias=False),
                "up_proj": nn.Linear(hidden, width, bias=False),
                "down_proj": nn.Linear(width, hidden, bias=False),
            }
        )
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (Norm(hidden, eps) for _ in range(3))

    def forward(self, embeds: torch.Tensor, states: torch.Tensor, past: list, step: int) -> torch.Tensor:
        """States of one step, [tokens, hidden]; ``past`` gathers each step's keys and values."""
        attention = self.self_attn
        x = torch.cat([self.input_layernorm(embeds), self.hidden_norm(states)], dim=-1)
        positions = torch.arange(len(x)) + step
        query = attention.rotate(attention.split(attention.q_proj(x)), positions)
        key = attention.rotate(attention.split(attention.k_proj(x)), positions)
        past.append((key, attention.split(attention.v_proj(x))))
        causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        own = torch.eye(len(x), dtype=torch.bool)
        mask = torch.cat([causal, *[own] * step], dim=-1)
        keys, values = (torch.cat(parts, dim=1) for parts in zip(*past, strict=True))
        mixed = functional.scaled_dot_product_attention(query, keys, values, mask)
        states = states + attention.o_proj(mixed.transpose(0, 1).reshape(len(x), -1))
        y, mlp = self.post_attention_layernorm(states), self.mlp
        return states + mlp["down_proj"](functional.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Eagle3(nn.Module):
    """The draft.

    Args:
        embedding: The verifier's, [vocabulary, hidden], not trained.
        head: Rows of the verifier's head for the draft vocabulary, where the draft's own head starts.
        heads, head_dim, width, theta, eps: Shape of the layer.
    """

    def __init__(
        self,
        embedding: torch.Tensor,
        head: torch.Tensor,
        heads: int,
        head_dim: int,
        width: int,
        theta: float,
        eps: float,
    ) -> None:
        super().__init__()
        hidden = embedding.shape[1]
        self.register_buffer("embedding", embedding, persistent=False)
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Layer(hidden, heads, head_dim, width, theta, eps)])
        self.norm = Norm(hidden, eps)
        self.lm_head = nn.Linear(hidden, len(head), bias=False)
        self.lm_head.weight.data = head.clone()

    def forward(self, sequence: Sequence, steps: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each step: the draft's logits, the verifier's logits that they should be, and the weights."""
        ids, results, past = sequence.ids, [], []
        states = self.fc(sequence.aux[:-1])
        for step in range(steps):
            following = functional.pad(ids[1 + step :], (0, step))
            states = self.layers[0](functional.embedding(following, self.embedding), states, past, step)
            known = len(ids) - 1 - step
            logits = self.lm_head(self.norm(states))[:known]
            results.append((logits, sequence.logits[1 + step :], sequence.mask[1 + step :]))
        return results


def train(draft: Eagle3, sequences: list[Sequence], epochs: int, lr: float, steps: int = 3, batch: int = 4) -> None:
    """Fit the draft to the verifier's distributions, several sequences a step."""
    optimizer = torch.optim.AdamW(draft.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    batches = [
        order[start : start + batch]
        for order in (torch.randperm(len(sequences), generator=generator).tolist() for _ in range(epochs))
        for start in range(0, len(sequences), batch)
    ]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=len(batches))
    for indices in batches:
        losses = [_loss(draft(sequences[index], steps)) for index in indices]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _loss(results: list) -> torch.Tensor:
    total = torch.zeros(())
    for logits, targets, mask in results:
        each = -(targets.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        total = total + (each * mask).sum() / mask.sum().clamp(min=1)
    return total


@torch.no_grad()
def accuracy(draft: Eagle3, sequences: list[Sequence], steps: int = 3) -> list[float]:
    """Share of trainable positions where draft and verifier prefer the same token, for each step."""
    right, total = [0.0] * steps, [0.0] * steps
    for sequence in sequences:
        for step, (logits, targets, mask) in enumerate(draft(sequence, steps)):
            right[step] += float(((logits.argmax(-1) == targets.argmax(-1)) * mask).sum())
            total[step] += float(mask.sum())
    return [hits / count for hits, count in zip(right, total, strict=True)]
