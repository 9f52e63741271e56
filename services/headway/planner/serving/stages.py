"""Which layers make which stage of a pipeline. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.core.mesh import ParallelConfig, Place
from headway.core.model import ModelSpec
from headway.core.shard import shard_of, shard_weight_bytes

_PROMPT_TOKENS = 1
"""That come with each token that is decoded. Conversations bring more; with none the head, whose product is the largest
and so the most efficient, would weigh more than it was measured to."""


def with_fastest_stages(spec: ModelSpec, parallel: ParallelConfig) -> ParallelConfig:
    """The layout with stages that take equally long, as far as whole layers allow: the output head is work too.

    Work is what a stage's weights weigh, by how many tokens they are multiplied with: layers see prompts too, which the
    head does not, and of the embedding a step reads a few rows. Stages that are given stay as they are, and even ones
    unnamed.
    """
    if parallel.pp == 1 or parallel.stage_layers:
        return parallel
    even = _stage_sizes(spec, parallel)
    fastest = balance_stages(even, lambda sizes: _stage_work(spec, replace(parallel, stage_layers=sizes)))
    return parallel if fastest == even else replace(parallel, stage_layers=fastest)


def _stage_sizes(spec: ModelSpec, parallel: ParallelConfig) -> tuple[int, ...]:
    return tuple(len(shard_of(spec, parallel, rank=rank).layers) for rank in _first_ranks(parallel))


def _stage_work(spec: ModelSpec, parallel: ParallelConfig) -> list[int]:
    """Bytes of weights times tokens, for each token that is decoded, of each stage's first rank."""
    work = []
    for rank in _first_ranks(parallel):
        shard = replace(shard_of(spec, parallel, rank=rank), is_first=False)
        layers_bytes = shard_weight_bytes(spec, replace(shard, is_last=False))
        work.append(shard_weight_bytes(spec, shard) + _PROMPT_TOKENS * layers_bytes)
    return work


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
