"""The engine's random episodes on a cache of several shards, which are rebalanced in every step."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_engine_properties import ACTIONS, LIMITS, Episode, MakeBench, MakeGroup

WEIGHTS = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(lambda weights: weights[0] > 0)
PLACE = st.tuples(st.just("place"), WEIGHTS)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    limits=LIMITS,
    num_shards=st.integers(2, 4),
    actions=st.lists(st.one_of(ACTIONS, PLACE), min_size=12, max_size=40),
)
def test_everything_ends_right_wherever_blocks_lie(
    make_bench: MakeBench,
    make_group: MakeGroup,
    limits: dict[str, Any],
    num_shards: int,
    actions: list[tuple[Any, ...]],
) -> None:
    for name in ("num_blocks", "num_host_blocks"):
        limits[name] = -(-limits[name] // num_shards) * num_shards
    limits |= {"num_shards": num_shards, "rebalance_every_steps": 1, "rebalance_threshold": 1.0}
    bench = make_bench(**limits)
    episode = Episode(bench, make_group)
    for name, *arguments in actions:
        if name == "place":
            bench.engine.set_shard_weights(arguments[0][:num_shards])
        else:
            getattr(episode, name)(*arguments)
    episode.finish()
