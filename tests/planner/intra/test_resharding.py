"""Resharding beside table 3.2 of the dissertation, and between all shardings of a small tensor."""

from itertools import product

import pytest

from headway.core.sharding_spec import Shard, ShardingSpec, sharding_specs
from headway.planner.intra.resharding import reshard

MESH = (2, 4)
BYTES = 1024.0
R, S0, S1 = None, Shard(0), Shard(1)


def spec(*axes: Shard | None) -> ShardingSpec:
    return ShardingSpec(axes)


@pytest.mark.parametrize(
    ("source", "target", "collectives"),
    [
        (spec(R, R), spec(S0, S1), []),
        (spec(S0, R), spec(R, R), [("all_gather", 0, BYTES / 2)]),
        (spec(S0, S1), spec(S0, R), [("all_gather", 1, BYTES / 8 * 3)]),
        (spec(S0, R), spec(S1, R), [("all_to_all", 0, BYTES / 2 / 2)]),
        (spec(S0, S1), spec(S0, S0), [("all_to_all", 1, BYTES / 8 * 3 / 4)]),
    ],
    ids=["RR to S0S1", "S0R to RR", "S0S1 to S0R", "S0R to RS0", "S0S1 to S01R"],
)
def test_the_cases_of_table_3_2(
    source: ShardingSpec, target: ShardingSpec, collectives: list[tuple[str, int, float]]
) -> None:
    """Bytes are those that leave a device: n - 1 shards of an all-gather over n devices, all but 1/n of an exchange."""
    steps = reshard(BYTES, source, target, MESH)
    assert [(step.operation, step.axis, step.sent_bytes) for step in steps] == collectives


def test_it_ends_for_all_pairs_and_costs_nothing_where_nothing_changes() -> None:
    specs = list(sharding_specs((8, 8, 8), (2, 2, 2)))
    assert len(specs) == 4**3
    for source, target in product(specs, specs):
        steps = list(reshard(BYTES, source, target, (2, 2, 2)))
        assert (source != target) or not steps
        gathered = [step.axis for step in steps if step.operation == "all_gather"]
        assert len(gathered) == len(set(gathered))
        needed = {axis for axis, shard in enumerate(source.axes) if shard is not None and target.axes[axis] is None}
        assert needed <= set(gathered)


def test_a_sharding_has_the_name_that_the_dissertation_gives_it() -> None:
    assert spec(S0, S1).label(2) == "S0S1"
    assert spec(S0, S0).label(2) == "S01R"
    assert spec(R, S1).label(2) == "RS1"
    assert spec(S0, Shard(0, outer=4)).label(1) == "S01'"
    assert not spec(S0, S0).fits((4, 4), MESH)
    assert spec(S0, R).num_shards(MESH) == 2
