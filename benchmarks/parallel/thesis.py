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

from headway.core.mesh import ParallelConfig
from headway.core.model import ModelSpec
from headway.planner.serving.exchange import exchanges_of

NUM_RANKS = (2, 4, 8)


def text_tp(*, batch: int, hidden_size: int, num_ranks: int) -> float:
    """4 (N-1) B E, as printed."""
    return 4.0 * (num_ranks - 1) * batch * hidden_size


def text_cp(*, batch: int, hidden_size: int, num_heads: int, num_ranks: int) -> float:
    """(N-1) 3 B E / N + (N-1) B (E + 2 H) / 2, as printed."""
    gathered = (num_ranks - 1) * 3 * batch * hidden_size / num_ranks
    return gathered + (num_ranks - 1) * batch * (hidden_size + 2 * num_heads) / 2


def derived_tp(*, batch: int, hidden_size: int, num_ranks: int) -> float:
    """Two all-reduces as rings."""
    return 4.0 * (num_ranks - 1) / num_ranks * batch * hidden_size


def derived_cp(*, batch: int, hidden_size: int, num_heads: int, num_ranks: int) -> float:
    """The text's two collectives, each rank giving (N-1)/N away."""
    share = (num_ranks - 1) / num_ranks
    return share * batch * (3 * hidden_size + hidden_size + 2 * num_heads)


def sent_elements(spec: ModelSpec, parallel: ParallelConfig, *, batch: int) -> float:
    """What the runtime sends per layer, in elements of the model's type: without embedding and logits."""
    layers = {"all_reduce", "all_gather", "all_to_all"}
    exchanges = [exchange for exchange in exchanges_of(spec, parallel, stage=0) if exchange.operation in layers]
    num_extra = sum(exchange.operation == "all_reduce" for exchange in exchanges)  # the embedding's
    num_bytes = 0.0
    for exchange in exchanges:
        share = 1 - num_extra / exchange.num_calls if exchange.operation == "all_reduce" else 1.0
        num_bytes += share * exchange.token_bytes
    return batch * num_bytes / spec.num_layers / spec.dtype_bytes
