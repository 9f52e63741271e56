"""Mixtures of experts in static shapes: each expert has room for a fixed number of tokens, the rest are dropped."""

from math import ceil

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.networks.feed_forward import GatedMlp


class DispatchedExperts(nn.Module):
    """GShard's layer: einsums with one-hot tensors send tokens to experts and back (GShard section 2.2).

    Each sequence is a group, in which an expert takes its equal share of all choices, in the order of the sequence,
    first choices before second ones.
    """

    def __init__(self, hidden: int, inner: int, *, num_experts: int, num_chosen: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.num_chosen = num_chosen
        self.router = nn.Linear(hidden, num_experts, bias=False)
        self.up = _weights(num_experts, hidden, inner)
        self.down = _weights(num_experts, inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, seq, hidden] to the same shape; zeros for a token that no expert had room for."""
        combine = self._combine(self.router(x).softmax(dim=-1))
        dispatch = (combine > 0).to(x.dtype)
        inputs = torch.einsum("gsec,gsm->egcm", dispatch, x)
        inner = functional.gelu(torch.einsum("egcm,emh->egch", inputs, self.up))
        outputs = torch.einsum("egch,ehm->egcm", inner, self.down)
        return torch.einsum("gsec,egcm->gsm", combine, outputs)

    def _combine(self, gates: Tensor) -> Tensor:
        """Weight of each token in each slot of each expert, [batch, seq, experts, capacity]."""
        seq = gates.shape[1]
        capacity = ceil(self.num_chosen * seq / self.num_experts)
        weights, chosen = gates.topk(self.num_chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        is_chosen = _one_hot(chosen, self.num_experts)
        in_order = is_chosen.transpose(1, 2).flatten(1, 2)
        slots = ((in_order.cumsum(dim=1) - in_order) * in_order).sum(dim=-1)
        slots = slots.view(-1, self.num_chosen, seq).transpose(1, 2)
        weighted = is_chosen.to(gates.dtype) * weights.unsqueeze(-1)
        # A slot at or beyond the capacity is no slot: its row is all zeros.
        return torch.einsum("gske,gskc->gsec", weighted, _one_hot(slots, capacity).to(gates.dtype))


class GatheredExperts(nn.Module):
    """Gated experts that gather the tokens of the router's highest weights and add their outputs back.

    There is room for `capacity_factor` times an equal share of all choices; `is_normalized` weights of a token's
    experts sum to one.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        *,
        num_experts: int,
        num_chosen: int,
        is_normalized: bool,
        capacity_factor: float,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.num_chosen = num_chosen
        self.is_normalized = is_normalized
        self.capacity_factor = capacity_factor
        self.router = nn.Linear(hidden, num_experts, bias=False)
        self.gate = _weights(num_experts, hidden, inner)
        self.up = _weights(num_experts, hidden, inner)
        self.down = _weights(num_experts, inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, seq, hidden] to the same shape; zeros for a token that no expert had room for."""
        tokens = x.flatten(0, 1)
        num_tokens = tokens.shape[0]
        capacity = min(num_tokens, ceil(self.capacity_factor * self.num_chosen * num_tokens / self.num_experts))
        weights, members = self._route(tokens).t().topk(capacity, dim=-1)
        inputs = tokens[members]
        inner = functional.silu(torch.bmm(inputs, self.gate)) * torch.bmm(inputs, self.up)
        outputs = torch.bmm(inner, self.down) * weights.unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, members.flatten(), outputs.flatten(0, 1)).view_as(x)

    def _route(self, tokens: Tensor) -> Tensor:
        """Weight of each expert for each token, [tokens, experts], zero where it was not chosen."""
        gates = self.router(tokens).softmax(dim=-1)
        weights, chosen = gates.topk(self.num_chosen, dim=-1)
        if self.is_normalized:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return torch.zeros_like(gates).scatter(-1, chosen, weights)


class SharedExperts(nn.Module):
    """A mixture of experts beside one that sees all tokens, weighted by a gate of its own."""

    def __init__(self, hidden: int, experts: GatheredExperts, *, inner: int) -> None:
        super().__init__()
        self.experts = experts
        self.shared = GatedMlp(hidden, inner, activation="silu")
        self.shared_gate = nn.Linear(hidden, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, seq, hidden] to the same shape."""
        return self.experts(x) + self.shared_gate(x).sigmoid() * self.shared(x)  # type: ignore[no-any-return]


def _one_hot(index: Tensor, size: int) -> Tensor:
    """Maps indices [...] to [..., size] of 0 and 1; all 0 for an index that is too large."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(torch.int64)


def _weights(num_experts: int, width_in: int, width_out: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(num_experts, width_in, width_out) * width_in**-0.5)
