"""Tables of rotary embeddings, for every scaling that a checkpoint may ask for.

The arithmetic is float32 in the order that `transformers` uses, so that logits agree to the last digits.
"""

import math

import torch
from torch import Tensor

from headway.core.model import RopeSpec


def rotary_table(rope: RopeSpec, max_position: int) -> Tensor:
    """Cosines, then sines, of the angle of each pair of dimensions at each position.

    Returns:
        float32 [max_position, rotary_dim]: cos in the first half of a row, sin in the second.
    """
    positions = torch.arange(max_position, dtype=torch.float32)
    if rope.kind == "dynamic":
        angles = positions[:, None] * _dynamic_frequencies(rope, max_position)
    else:
        angles = positions[:, None] * _frequencies(rope)
    table = torch.cat((angles.cos(), angles.sin()), dim=1)
    return table if rope.attention_factor is None else table.mul_(rope.attention_factor)


def _frequencies(rope: RopeSpec) -> Tensor:
    """Angle per position of each pair, [rotary_dim / 2]."""
    match rope.kind:
        case "linear":
            return _plain(rope, rope.theta) / rope.factor
        case "llama3":
            return _llama3(rope)
        case "yarn":
            return _yarn(rope)
        case _:
            return _plain(rope, rope.theta)


def _exponents(rope: RopeSpec) -> Tensor:
    return torch.arange(0, rope.rotary_dim, 2, dtype=torch.float32) / rope.rotary_dim


def _plain(rope: RopeSpec, theta: float) -> Tensor:
    frequencies: Tensor = 1.0 / (theta ** _exponents(rope))
    return frequencies


def _dynamic_frequencies(rope: RopeSpec, max_position: int) -> Tensor:
    """NTK-aware scaling whose base grows with the sequence, [max_position, rotary_dim / 2].

    A token is rotated with the base of the sequence that ends at it. That is what generating token by token gives,
    and it does not depend on how a prompt is cut into chunks.
    """
    length = torch.arange(1, max_position + 1, dtype=torch.float64).clamp_(min=rope.original_max_position)
    growth = rope.factor * length / rope.original_max_position - (rope.factor - 1)
    theta = rope.theta * growth ** (rope.rotary_dim / (rope.rotary_dim - 2))
    return 1.0 / (theta.float()[:, None] ** _exponents(rope))


def _llama3(rope: RopeSpec) -> Tensor:
    """Slows long waves by the factor, keeps short ones, and blends in between (Llama 3.1)."""
    frequencies = _plain(rope, rope.theta)
    num_waves = rope.original_max_position / (2 * math.pi / frequencies)
    blend = (num_waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - blend) * frequencies / rope.factor + blend * frequencies
    slowed = torch.where(num_waves < rope.low_freq_factor, frequencies / rope.factor, blended)
    return torch.where(num_waves > rope.high_freq_factor, frequencies, slowed)


def _yarn(rope: RopeSpec) -> Tensor:
    """Interpolates slow dimensions, keeps fast ones, with a ramp between (YaRN, section 3.2)."""
    low, high = _correction(rope, rope.beta_fast), _correction(rope, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low or 0.001
    ramp = ((torch.arange(rope.rotary_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - ramp
    waves = rope.theta ** _exponents(rope)
    return 1.0 / (rope.factor * waves) * (1 - kept) + 1.0 / waves * kept


def _correction(rope: RopeSpec, num_rotations: float) -> float:
    """The dimension that turns `num_rotations` times over the original context."""
    length = rope.original_max_position / (num_rotations * 2 * math.pi)
    return rope.rotary_dim * math.log(length) / (2 * math.log(rope.theta))
