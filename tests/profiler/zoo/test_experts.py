"""Mixtures of experts against loops over tokens and experts."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headway.profiler.zoo.networks.experts import DispatchedExperts, GatheredExperts

HIDDEN, INNER, EXPERTS, CHOSEN = 8, 12, 4, 2


def gated(experts: GatheredExperts, expert: int, token: Tensor) -> Tensor:
    inner = functional.silu(token @ experts.gate[expert]) * (token @ experts.up[expert])
    return inner @ experts.down[expert]


@pytest.mark.parametrize("is_normalized", [True, False])
def test_gathered_experts_with_room_for_all_drop_none(is_normalized: bool) -> None:
    torch.manual_seed(0)
    experts = GatheredExperts(
        HIDDEN,
        INNER,
        num_experts=EXPERTS,
        num_chosen=CHOSEN,
        is_normalized=is_normalized,
        capacity_factor=EXPERTS / CHOSEN,
    )
    x = torch.randn(2, 5, HIDDEN)
    expected = torch.zeros_like(x)
    for sequence in range(2):
        for position in range(5):
            token = x[sequence, position]
            gates = experts.router(token).softmax(-1)
            chosen = gates.argsort(descending=True)[:CHOSEN]
            total = gates[chosen].sum() if is_normalized else 1.0
            expected[sequence, position] = sum(gates[e] / total * gated(experts, e, token) for e in chosen.tolist())
    torch.testing.assert_close(experts(x), expected)


def test_gathered_experts_keep_the_tokens_that_the_router_prefers() -> None:
    torch.manual_seed(1)
    experts = GatheredExperts(
        HIDDEN, INNER, num_experts=EXPERTS, num_chosen=1, is_normalized=False, capacity_factor=1.0
    )
    x = torch.randn(1, 8, HIDDEN)
    gates = experts.router(x[0]).softmax(-1)
    best, chosen = gates.max(-1)
    expected = torch.zeros_like(x)
    for expert in range(EXPERTS):
        members = sorted((chosen == expert).nonzero().flatten().tolist(), key=lambda token: -best[token].item())
        for token in members[:2]:
            expected[0, token] = best[token] * gated(experts, expert, x[0, token])
    assert (expected == 0).all(-1).any(), "the seed should leave some expert with too many tokens"
    torch.testing.assert_close(experts(x), expected)


def test_dispatched_experts_fill_up_in_the_order_of_choices_and_positions() -> None:
    torch.manual_seed(0)
    experts = DispatchedExperts(HIDDEN, INNER, num_experts=EXPERTS, num_chosen=CHOSEN)
    seq = 6
    x = torch.randn(2, seq, HIDDEN)
    expected, num_dropped = torch.zeros_like(x), 0
    for sequence in range(2):
        room = dict.fromkeys(range(EXPERTS), seq * CHOSEN // EXPERTS)
        gates = experts.router(x[sequence]).softmax(-1)
        weights, chosen = gates.topk(CHOSEN, dim=-1)
        for choice in range(CHOSEN):
            for position in range(seq):
                expert = int(chosen[position, choice])
                if not room[expert]:
                    num_dropped += 1
                    continue
                room[expert] -= 1
                weight = weights[position, choice] / weights[position].sum()
                inner = functional.gelu(x[sequence, position] @ experts.up[expert])
                expected[sequence, position] += weight * (inner @ experts.down[expert])
    assert num_dropped > 0, "the seed should leave some expert with too many tokens"
    torch.testing.assert_close(experts(x), expected)
