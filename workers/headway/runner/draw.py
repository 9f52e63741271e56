"""Random choice of tokens: a draw depends on the row's logits, its seed and its position, and on nothing else."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.request import GREEDY_TEMPERATURE

# Weights are summed in blocks, and only the block that a draw falls into is looked at token by token.
_BLOCK = 128

_MASK_64 = (1 << 64) - 1


def uniforms(seeds: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position): splitmix64's state after `position` steps, mixed twice.

    The numbers of a sequence are the same in any batch, after any preemption, and on any worker.
    """
    state = _mix(np.array([seed & _MASK_64 for seed in seeds], np.uint64))
    state += (np.array(positions, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    # 52 bits, so that u * total stays below total in double precision.
    return (_mix(state) >> np.uint64(12)).astype(np.float64) * 2.0**-52


def token_weights(logits: Tensor, temperature: Tensor, *, best: Tensor | None = None) -> Tensor:
    """exp((logits - best) / temperature): proportional to the softmax, and 1 for the best token.

    A row without a finite best logit, from a broken checkpoint, weighs all tokens alike; no sequence gets any of them.

    Args:
        logits: float32 [R, V].
        temperature: float32 [R]; `GREEDY_TEMPERATURE` stands for lower ones, which would leave no weight but NaN.
        best: float32 [R], the largest logits, where they are known.

    Returns:
        float32 [R, W]: W is V rounded up to whole blocks, and the columns from V on are 0.
    """
    num_rows, vocab_size = logits.shape
    padded = logits.new_empty(num_rows, -(-vocab_size // _BLOCK) * _BLOCK)
    padded[:, vocab_size:] = 0
    weights = padded[:, :vocab_size]
    if best is None:
        best = logits.amax(1)
    torch.sub(logits, best[:, None], out=weights)
    weights.div_(temperature.clamp(min=GREEDY_TEMPERATURE)[:, None]).exp_()
    is_broken = ~best.isfinite()
    if is_broken.any():
        weights[is_broken] = 1
    return padded


def draw_tokens(weights: Tensor, uniform: Tensor) -> Tensor:
    """Inverts the cumulative distribution, in the order of the vocabulary.

    Args:
        weights: [R, W] as from `token_weights`; tokens of weight 0 are never drawn.
        uniform: float64 [R], in [0, 1).

    Returns:
        int64 [R].
    """
    blocks = weights.view(len(weights), -1, _BLOCK)
    totals = blocks.sum(2).double().cumsum(1)
    target = (uniform * totals[:, -1])[:, None]
    block = torch.searchsorted(totals, target, right=True)
    before = totals.gather(1, (block - 1).clamp_(min=0)).where(block > 0, 0)
    inside = blocks[torch.arange(len(weights), device=weights.device), block[:, 0]].double().cumsum(1)
    # A block's float32 total can exceed the sum in double precision: stay below the latter.
    rest = torch.minimum(target - before, inside[:, -1:] * (1 - 2.0**-52))
    return (block * _BLOCK + torch.searchsorted(inside, rest, right=True))[:, 0]


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's output function: every input bit changes about half of the output bits."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
