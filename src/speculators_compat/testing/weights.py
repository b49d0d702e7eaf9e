"""Random weights that behave: unit-scale activations, and routers without close calls.

Every tensor has its own random stream, derived from the seed and the tensor's name, so that adding
a layer or a tensor changes no other one.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from speculators_compat.testing.checkpoint import require

if TYPE_CHECKING:
    import torch

#: Router candidates drawn for each layer; the one with the widest margin is kept.
ROUTER_DRAWS = 256
#: Distinct routing codes; every token of the vocabulary carries one of them.
ROUTING_CODES = 16
#: Margin between the last chosen and the first rejected score: far above float32 rounding.
ROUTER_MARGIN = 1e-4
#: Range of 1 / rms(hidden state) that the router's choice must survive unchanged.
INVERSE_RMS = (0.25, 1.5)


class WeightMaker:
    """Draws the tensors of one model.

    Routing is made robust on purpose. A random router has tokens whose k-th and (k+1)-th expert
    scores differ by less than float32 rounding; two correct engines then choose different experts
    and their states differ by several per cent. Here the first ``hidden_size // 8`` dimensions of
    the residual stream carry a code of +1 and -1 that depends on the token only: the embedding
    writes it, no layer changes it (the rows of ``o_proj`` and ``down_proj`` are zero there), and
    the routers read nothing else. A router can then be checked against all codes when it is drawn.

    Args:
        seed: Seed of every stream.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Number of decoder layers; residual branches shrink with its root, as in
            GPT-2, so that 61 layers neither explode nor amplify rounding.
        dtype: ``"float32"`` or ``"bfloat16"``.
        routed: Whether the model has routers, that is, whether to reserve the code dimensions.
    """

    def __init__(self, *, seed: int, hidden_size: int, num_hidden_layers: int, dtype: str, routed: bool) -> None:
        import torch

        self._seed = seed
        self._hidden_size = hidden_size
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._branch_gain = 1.5 / (2 * num_hidden_layers) ** 0.5
        self._code_size = hidden_size // 8 if routed else 0

    def _stream(self, name: str) -> torch.Generator:
        import torch

        return torch.Generator().manual_seed(zlib.crc32(name.encode()) ^ (self._seed * 0x9E3779B1))

    def normal(self, name: str, shape: tuple[int, ...], std: float) -> torch.Tensor:
        """Gaussian tensor of ``shape`` with standard deviation ``std``."""
        import torch

        values = torch.randn(shape, generator=self._stream(name)) * std
        return values.to(self._dtype)

    def linear(self, name: str, rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        """Projection ``[rows, columns]`` that maps unit-variance input to variance ``gain**2``."""
        return self.normal(name, (rows, columns), gain * columns**-0.5)

    def branch(self, name: str, rows: int, columns: int) -> torch.Tensor:
        """Projection back into the residual stream: scaled down, and silent on the code."""
        weight = self.linear(name, rows, columns, self._branch_gain * 2**0.5)
        weight[: self._code_size] = 0
        return weight

    def norm(self, name: str, size: int, centre: float = 1.0) -> torch.Tensor:
        """RMSNorm or LayerNorm weight around ``centre``: uniform, plus or minus 0.2."""
        import torch

        values = torch.rand(size, generator=self._stream(name)) * 0.4 - 0.2 + centre
        return values.to(self._dtype)

    def embedding(self, name: str, vocab_size: int, std: float = 1.0) -> torch.Tensor:
        """Embedding table ``[vocab_size, hidden_size]``, carrying the routing code if any."""
        import torch

        weight = self.normal(name, (vocab_size, self._hidden_size), std)
        if self._code_size:
            owner = torch.randint(ROUTING_CODES, (vocab_size,), generator=self._stream(f"{name}/code"))
            weight[:, : self._code_size] = self._codes()[owner].to(self._dtype)
        return weight

    def _codes(self) -> torch.Tensor:
        import torch

        shape = (ROUTING_CODES, self._code_size)
        bits = torch.randint(2, shape, generator=self._stream("routing codes"))
        return bits.float() * 2 - 1

    def router(
        self, name: str, num_experts: int, top_k: int, norm_weight: torch.Tensor, *, sigmoid: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Router weight and score-correction bias whose choice no rounding can flip.

        Args:
            name: Checkpoint name of the weight; names the random stream.
            num_experts: Number of routed experts.
            top_k: Experts chosen for a token.
            norm_weight: ``[hidden_size]`` weight of the norm in front of the router.
            sigmoid: Sigmoid scores with a correction bias (DeepSeek-V3) instead of plain logits.

        Returns:
            Weight ``[num_experts, hidden_size]`` in the model's dtype and bias ``[num_experts]`` in
            float32. The bias shuts one expert out where that leaves a choice, so that an engine
            that ignores it is seen.

        Raises:
            ValueError: If no draw keeps the margin, as with hundreds of experts.
        """
        import torch

        stream = self._stream(name)
        size = self._code_size
        draws = torch.randn((ROUTER_DRAWS, num_experts, size), generator=stream) * size**-0.5
        draws = draws.to(self._dtype).float()
        bias = torch.zeros(num_experts)
        if sigmoid:
            bias = (torch.rand(num_experts, generator=stream) - 0.5) * 0.001
            if num_experts > top_k + 1:
                bias[int(torch.randint(num_experts, (1,), generator=stream))] -= 1.0
        inputs = self._codes() * norm_weight[:size].float()
        scales = torch.linspace(*INVERSE_RMS, 26).view(-1, 1, 1, 1)
        scores = torch.einsum("ci,dei->dce", inputs, draws) * scales
        margins = _worst_margins((scores.sigmoid() if sigmoid else scores) + bias, top_k)
        best = int(margins.argmax())
        found = float(margins[best])
        way_out = "use fewer experts or a larger hidden_size"
        require(found > ROUTER_MARGIN, f"router margin above {ROUTER_MARGIN}", found, way_out)
        weight = torch.zeros(num_experts, self._hidden_size)
        weight[:, :size] = draws[best]
        return weight.to(self._dtype), bias


def _worst_margins(scores: torch.Tensor, top_k: int) -> torch.Tensor:
    """Smallest gap between the last chosen and the first rejected expert, for each draw.

    Args:
        scores: ``[scales, draws, codes, experts]``.
        top_k: Experts chosen for a token.

    Returns:
        ``[draws]``; minus one where the chosen set depends on the scale, since the scores then
        cross somewhere between two scales.
    """
    import torch

    experts = scores.shape[-1]
    if top_k >= experts:
        return torch.ones(scores.shape[1])
    values, indices = scores.topk(top_k + 1, dim=-1)
    gaps = (values[..., top_k - 1] - values[..., top_k]).amin(dim=(0, 2))
    chosen = torch.zeros_like(scores).scatter_(-1, indices[..., :top_k], 1.0)
    steady = (chosen == chosen[:1]).all(dim=-1).all(dim=-1).all(dim=0)
    return torch.where(steady, gaps, torch.tensor(-1.0))
