"""Volumes of section 4.4 of the thesis, and ours, in elements that leave a rank per layer.

B sequences decode one token each; E is the hidden size and H the number of heads, as many of keys and values. What
differs, and why:

- tp: the text counts 2 (N-1) B E for an all-reduce, which is what all ranks of a ring send together, halved. A rank
  sends 2 (N-1)/N B E: a factor N.
- cp, all-gather: equal, (N-1)/N 3 B E. With fewer heads of keys and values ours is less.
- cp, all-to-all: the text divides by 2 where each rank gives (N-1)/N of its partial results away: a factor N/2, none
  for two ranks. Ours has one number beside each head's output, the logarithm of its weight, where the text has two, and
  all of it in float32, which counts twice beside 16-bit elements.
"""

from dataclasses import replace

from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.planner.serving.collectives import collectives_of

NUM_RANKS = (2, 4, 8)


def text_tp(*, batch: int, hidden_size: int, num_ranks: int) -> float:
    """Elements of tp as printed: 4 (N-1) B E."""
    return 4.0 * (num_ranks - 1) * batch * hidden_size


def text_cp(*, batch: int, hidden_size: int, num_heads: int, num_ranks: int) -> float:
    """Elements of cp as printed: (N-1) 3 B E / N + (N-1) B (E + 2 H) / 2."""
    gathered = (num_ranks - 1) * 3 * batch * hidden_size / num_ranks
    return gathered + (num_ranks - 1) * batch * (hidden_size + 2 * num_heads) / 2


def derived_tp(*, batch: int, hidden_size: int, num_ranks: int) -> float:
    """Elements of tp as two all-reduces in rings."""
    return 4.0 * (num_ranks - 1) / num_ranks * batch * hidden_size


def derived_cp(*, batch: int, hidden_size: int, num_heads: int, num_ranks: int) -> float:
    """Elements of the text's two collectives, each rank giving (N-1)/N away."""
    share = (num_ranks - 1) / num_ranks
    return share * batch * (3 * hidden_size + hidden_size + 2 * num_heads)


def sent_elements(spec: ModelSpec, parallel: ParallelConfig, *, batch: int) -> float:
    """What the runtime sends per layer, in elements of the model's type: what a layer more adds to a decode."""
    one, two = (_decode_bytes(replace(spec, num_layers=num_layers), parallel) for num_layers in (1, 2))
    return batch * (two - one) / spec.dtype_bytes


def _decode_bytes(spec: ModelSpec, parallel: ParallelConfig) -> float:
    """That leave the rank that sends most for a token."""
    return sum(each.token_bytes + each.wanted_bytes for each in collectives_of(spec, parallel, stage=0))
