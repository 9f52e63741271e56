"""Divides layers into the stages of a pipeline. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Place, Span
from headway.core.shard import shard_of, shard_weight_bytes


def with_fastest_stages(spec: ModelSpec, parallel: ParallelConfig) -> ParallelConfig:
    """The layout with stages that take equally long, as far as whole layers allow.

    Work is what a stage's layers weigh, which sparse and dense ones do not alike; all stages share the output head, and
    of the embedding a step reads a few rows. Stages that are given stay as they are, and even ones unnamed.
    """
    if parallel.pp == 1 or parallel.stage_layers:
        return parallel
    even = _stage_sizes(spec, parallel)
    fastest = balance_stages(even, lambda sizes: _stage_work(spec, replace(parallel, stage_layers=sizes)))
    return parallel if fastest == even else replace(parallel, stage_layers=fastest)


def _stage_sizes(spec: ModelSpec, parallel: ParallelConfig) -> tuple[int, ...]:
    return tuple(len(shard_of(spec, parallel, rank=rank).layers) for rank in _first_ranks(parallel))


def _stage_work(spec: ModelSpec, parallel: ParallelConfig) -> list[int]:
    """Bytes of the layers of each stage's first rank."""
    shards = [shard_of(spec, parallel, rank=rank) for rank in _first_ranks(parallel)]
    return [shard_weight_bytes(spec, replace(shard, is_first=False, head=Span(0, 0))) for shard in shards]


def _first_ranks(parallel: ParallelConfig) -> list[int]:
    return [parallel.rank_of(Place(stage, 0, 0)) for stage in range(parallel.pp)]


def balance_stages(
    num_layers: Sequence[int], lacking_bytes: Callable[[tuple[int, ...]], Sequence[int]]
) -> tuple[int, ...]:
    """Moves layers one by one from the stage that lacks most to the one that lacks least, as long as that helps.

    With layers of equal size no other split leaves the stage that lacks most with less to lack.

    Args:
        num_layers: of each stage, to begin with.
        lacking_bytes: what each stage lacks with so many layers, or its work; negative where there is room.
    """
    best = tuple(num_layers)
    lacking = lacking_bytes(best)
    while True:
        stages = [stage for stage in range(len(best)) if best[stage] > 1]
        if not stages:
            return best
        tightest, widest = max(stages, key=lacking.__getitem__), min(range(len(best)), key=lacking.__getitem__)
        moved = tuple(size - (stage == tightest) + (stage == widest) for stage, size in enumerate(best))
        changed = lacking_bytes(moved)
        if sorted(changed, reverse=True) >= sorted(lacking, reverse=True):
            return best
        best, lacking = moved, changed
