"""A mixture of experts: a router sends each token to a few of many small MLPs (Mixtral, Qwen2-MoE, Qwen3-MoE)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from headway.core.model import ExpertsSpec, ModelSpec
from headway.models.grouped_experts import GroupedExperts, groups_experts
from headway.models.layout import Alone, Layout
from headway.models.linear import Linear
from headway.models.mlp import GatedMlp
from headway.models.weights import NamedPart, Piece, under


class MixtureOfExperts:
    """A mixture of experts; see `headway.models.mlp.FeedForward`.

    Tokens are sorted by expert, so that each expert that has any multiplies all of its tokens at once; the others are
    not touched. A token's experts are added up in the order of their weights, whatever else is in its batch. Some
    devices multiply all experts' tokens in one launch (`GroupedExperts`).

    Each rank has some of the experts whole, and part of the shared one; the router is on all of them.
    """

    def __init__(
        self, spec: ModelSpec, experts: ExpertsSpec, *, layout: Layout, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._axis = layout.tensor
        self._num_experts = experts.num_experts
        self._num_chosen = experts.num_experts_per_tok
        self._is_normalized = experts.is_normalized
        inner, numbers = Piece.whole(experts.intermediate_size), layout.shard.experts
        self._grouped: GroupedExperts | None = None
        if groups_experts(spec, device):
            self._grouped = GroupedExperts(spec, experts, numbers, dtype=dtype, device=device)
        self._experts = {
            number: GatedMlp(
                spec,
                inner,
                axis=Alone(),
                dtype=dtype,
                device=device,
                weights=(None, None) if self._grouped is None else self._grouped.weights(number),
            )
            for number in numbers
        }
        self._shared: GatedMlp | None = None
        if experts.shared_intermediate_size:
            inner = Piece(layout.shard.shared_mlp, experts.shared_intermediate_size)
            self._shared = GatedMlp(spec, inner, axis=layout.tensor, dtype=dtype, device=device)
        # Small, and rounding it would send tokens elsewhere. The shared expert's gate is its last output.
        self._router = Linear(
            spec.hidden_size,
            experts.num_experts + (self._shared is not None),
            bias=False,
            dtype=dtype,
            device=device,
            is_quantizable=False,
        )

    def __call__(self, x: Tensor) -> Tensor:
        scores = self._router(x)
        weights, chosen = self._route(scores[:, : self._num_experts])
        outputs = self._apply(x, chosen) if self._grouped is None else self._grouped(x, chosen)
        shared_weights = scores[:, self._num_experts :].sigmoid()
        out = torch.zeros_like(x) if self._shared is None else self._shared.summand(x) * shared_weights
        for choice in range(self._num_chosen):
            out.addcmul_(outputs[:, choice], weights[:, choice, None])
        return out if self._axis.size == 1 else self._axis.all_reduce(out, site="mlp")

    def _apply(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Applies to each token each of its experts: [T, num_chosen, hidden], zeros for the experts of other ranks."""
        allocate = x.new_empty if len(self._experts) == self._num_experts else x.new_zeros
        outputs = allocate((chosen.numel(), x.shape[1]))
        by_expert = chosen.flatten().argsort(stable=True)
        start = 0
        for number, num_tokens in enumerate(chosen.flatten().bincount(minlength=self._num_experts).tolist()):
            if num_tokens and number in self._experts:
                places = by_expert[start : start + num_tokens]
                outputs[places] = self._experts[number](x[places // self._num_chosen])
            start += num_tokens
        return outputs.view(*chosen.shape, x.shape[1])

    def _route(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """scores [T, num_experts] -> weights, in their type, and expert numbers of each token, both [T, num_chosen]."""
        weights, chosen = scores.softmax(dim=1, dtype=torch.float32).topk(self._num_chosen, dim=1)
        if self._is_normalized:
            weights /= weights.sum(dim=1, keepdim=True)
        return weights.to(scores.dtype), chosen

    def named(self) -> Iterator[NamedPart]:
        outputs = [("gate", Piece.whole(self._num_experts))]
        if self._shared is not None:
            outputs.append(("shared_expert_gate", Piece.whole(1)))
            yield from under("shared_expert", self._shared.named())
        yield from self._router.named_parts(*outputs)
        for number, expert in self._experts.items():
            yield from under(f"experts.{number}", expert.named())

    def linears(self) -> list[Linear]:
        shared = [] if self._shared is None else self._shared.linears()
        return [self._router, *shared, *(linear for expert in self._experts.values() for linear in expert.linears())]
