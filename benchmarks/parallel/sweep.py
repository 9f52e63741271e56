"""The chapter's experiments on a node: batches of uneven lengths, decoded once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.parallel.node import (
    A5000_NODE,
    H200_NODE,
    LLAMA_7B,
    LLAMA_70B,
    Decode,
    Node,
    decode,
    draw_lengths,
    layouts_on,
)
from headway.core.model import ModelSpec
from headway.planner.serving.cost import StepCost

BATCHES = (32, 64, 128, 256, 512)
SHOWN_BATCHES = (32, 128, 512)
LENGTHS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
TRADE_OFF_LENGTHS = (10_000, 50_000, 100_000)
BREAKDOWN_LENGTHS = (1_000, 10_000, 50_000, 100_000)
BREAKDOWN_BATCH = 128
PREFIX_TOKENS = 512
SEEDS = range(8)
HEADWAY_TABLE_ENTRY_S = 1.5e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model's layer on a node."""

    name: str
    node: Node
    spec: ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lognormal; `sigma` is the standard deviation of the logarithms, our choice."""

    kind: str
    sigma: float
    prefix: int = 0

    def draw(self, batch: int, *, mean: int, seed: int) -> list[int]:
        return draw_lengths(batch, mean=mean, sigma=self.sigma, seed=seed, prefix=self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Means over the seeds.

    Attributes:
        length: mean of the sequences, in tokens.
        latency_s: of one decode.
    """

    layout: str
    batch: int
    length: int
    tokens_per_s: float
    latency_s: float
    cost: StepCost
    swapped_share: float


CASES = (
    Case(name="a5000-7b", node=A5000_NODE, spec=LLAMA_7B),
    Case(name="h200-7b", node=H200_NODE, spec=LLAMA_7B),
    Case(name="h200-70b", node=H200_NODE, spec=LLAMA_70B),
)
PREFIX = Lengths(kind="prefix", sigma=0.5)
DECODE = Lengths(kind="decode", sigma=0.9, prefix=PREFIX_TOKENS)


def sweep(case: Case, lengths: Lengths, *, means: Sequence[int] = LENGTHS) -> list[Point]:
    """Every layout, batch and mean length."""
    return [
        measure(case, lengths, layout=layout, batch=batch, mean=mean)
        for layout in layouts_on(case.node)
        for batch in BATCHES
        for mean in means
    ]


def measure(case: Case, lengths: Lengths, *, layout: str, batch: int, mean: int, is_layer: bool = True) -> Point:
    """One layout, batch and mean length."""
    parallel = layouts_on(case.node)[layout]
    decodes = [
        decode(case.spec, parallel, case.node, lengths.draw(batch, mean=mean, seed=seed), is_layer=is_layer)
        for seed in SEEDS
    ]
    return _mean(layout, batch, mean, decodes)


def crossover(case: Case, *, batch: int, table_entry_s: float, is_layer: bool) -> int | None:
    """The least mean length, in steps of a tenth, from which cp is ahead of tp; None where it never is up to 1M."""
    node = replace(case.node, roofline=replace(case.node.roofline, table_entry_s=table_entry_s))
    wanted = replace(case, node=node)
    even = Lengths(kind="even", sigma=0.0)
    length = 100.0
    while length <= 1e6:
        tp, cp = (
            measure(wanted, even, layout=layout, batch=batch, mean=round(length), is_layer=is_layer)
            for layout in ("tp", "cp")
        )
        if cp.latency_s <= tp.latency_s:
            return round(length)
        length *= 1.1
    return None


def _mean(layout: str, batch: int, length: int, decodes: list[Decode]) -> Point:
    total = sum((decode.cost for decode in decodes), start=StepCost())
    return Point(
        layout=layout,
        batch=batch,
        length=length,
        tokens_per_s=fmean(decode.tokens_per_s for decode in decodes),
        latency_s=fmean(decode.cost.total_s for decode in decodes),
        cost=total.times(1 / len(decodes)),
        swapped_share=fmean(decode.swapped_share for decode in decodes),
    )
