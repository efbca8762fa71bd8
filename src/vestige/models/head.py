"""The decision head: scores an option from two vectors. It knows no option ids."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DecisionHead"]


def standardised(options: Tensor, floor: float = 0.01) -> Tensor:
    """Each coordinate centred and scaled over the options, rows then of length 1. (..., C, d), unit rows in.

    floor: its square is added to the variance, so that a coordinate on which all options agree stays 0; unit
    rows of some hundred coordinates have standard deviations of 0.03 to 0.05.
    """
    centred = options - options.mean(-2, keepdim=True)
    spread = (centred.square().mean(-2, keepdim=True) + floor**2).sqrt()
    return nn.functional.normalize(centred / spread, dim=-1)


class DecisionHead(nn.Module):
    """Projected similarity plus a small interaction network, over options seen against each other.

    `score(u, o) = exp(s) cos(P u, z(Q o)) + w . relu(A Pu + B z + D (Pu * z))`, projections normalised in
    both terms. `z` standardises each coordinate over the candidate options, so that an option is what sets it
    apart from the others on offer: scores depend on the candidate set, and not on its order. P and Q start
    as the identity and w at 0, so that an untrained head scores by the backbone's own similarity.
    """

    def __init__(self, hidden_size: int, width: int = 64, scale: float = 20.0) -> None:
        super().__init__()
        self.utterance = nn.Linear(hidden_size, hidden_size, bias=False)
        self.option = nn.Linear(hidden_size, hidden_size, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.from_utterance = nn.Linear(hidden_size, width)
        self.from_option = nn.Linear(hidden_size, width, bias=False)
        self.from_product = nn.Linear(hidden_size, width, bias=False)
        self.out = nn.Linear(width, 1, bias=False)
        nn.init.eye_(self.utterance.weight)
        nn.init.eye_(self.option.weight)
        nn.init.zeros_(self.out.weight)

    @torch.no_grad()
    def draw(self) -> None:
        """Draw every matrix anew, normal with variance 1 / columns, from torch's generator."""
        for weight in self.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) / weight.shape[-1] ** 0.5)

    def forward(self, utterances: Tensor, options: Tensor) -> Tensor:
        """(n, d), (C, d) shared or (n, C, d) own options -> (n, C) logits, unbounded."""
        u = nn.functional.normalize(self.utterance(utterances), dim=-1)
        o = standardised(nn.functional.normalize(self.option(options), dim=-1))
        u = u[:, None, :]
        o = o[None] if o.dim() == 2 else o
        similarity = (u * o).sum(-1) if o.shape[0] > 1 else u[:, 0] @ o[0].T
        product = self._product(u, o)
        hidden = torch.relu(self.from_utterance(u) + self.from_option(o) + product)
        logits: Tensor = self.log_scale.exp() * similarity + self.out(hidden)[..., 0]
        return logits

    def _product(self, u: Tensor, o: Tensor) -> Tensor:
        """`D (Pu * Qo)`, (n, C, width), without the (n, C, d) product where options are shared."""
        weight = self.from_product.weight
        if o.shape[0] > 1:
            out: Tensor = self.from_product(u * o)
            return out
        scaled = o[0][None] * weight[:, None, :]  # (width, C, d)
        flat = u[:, 0] @ scaled.reshape(-1, scaled.shape[-1]).T
        return flat.reshape(u.shape[0], weight.shape[0], o.shape[1]).transpose(1, 2)
