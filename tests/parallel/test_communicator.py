"""Collectives between real processes, through shared memory and through torch's."""

from pathlib import Path

import pytest
import torch

from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel.collective_counters import CollectiveKey
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.process_group import ProcessGroup
from headway.runner.parallel.shared_memory import SharedMemory
from tests.parallel.exchanges import exchange_all, exchange_often, sums_of
from tests.parallel.ranks import run_ranks

TRANSPORTS = {"shared memory": (), "gloo": (0, 1, 2, 3)}
"""By name, the ranks that cannot share memory."""

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def add_up(group: RankGroup) -> list[str]:
    return sums_of(group.tensor)


@each_transport
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_every_rank_has_the_same_sum_bit_for_bit(num_ranks, transport):
    leaders, *others = run_ranks(num_ranks, add_up, ranks_without_memory=TRANSPORTS[transport])
    assert others == [leaders] * (num_ranks - 1)


@each_transport
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_every_rank_gets_what_the_others_have_for_it(num_ranks, transport):
    run_ranks(num_ranks, exchange_all, ranks_without_memory=TRANSPORTS[transport])


@pytest.mark.parametrize(
    ("num_ranks", "transport", "num_rounds"),
    [(2, "shared memory", 5000), (3, "shared memory", 3000), (4, "shared memory", 2000), (3, "gloo", 300)],
)
def test_thousands_of_exchanges_at_any_pace_stay_in_step(num_ranks, transport, num_rounds):
    run_ranks(num_ranks, exchange_often, num_rounds, ranks_without_memory=TRANSPORTS[transport])


def transports_in(group: RankGroup) -> list[type]:
    group.tensor.all_reduce(torch.ones(3), site="test")
    return [type(axis._transport) for axis in (group.tensor, group.cache) if axis.size > 1]


@pytest.mark.parametrize(
    ("ranks_without_memory", "expected"), [((), SharedMemory), ((0,), ProcessGroup), ((1,), ProcessGroup)]
)
def test_ranks_share_memory_only_if_all_of_them_can(ranks_without_memory, expected):
    found = run_ranks(3, transports_in, ranks_without_memory=ranks_without_memory)
    assert found == [[expected]] * 3


def test_each_row_of_ranks_decides_for_itself():
    layout = ParallelConfig(tp=2, cp=2)
    found = run_ranks(layout, transports_in, ranks_without_memory=(3,))
    # Ranks 2 and 3 share weights, 1 and 3 a cache.
    assert found == [
        [SharedMemory, SharedMemory],
        [SharedMemory, ProcessGroup],
        [ProcessGroup, SharedMemory],
        [ProcessGroup, ProcessGroup],
    ]


def ranks_along(group: RankGroup) -> tuple[list[int], list[int]]:
    found = []
    for axis in (group.tensor, group.cache):
        own = torch.tensor([float(group.rank)])
        assert axis.all_gather(own, sizes=[1] * axis.size, site="test")[axis.rank] is own
        ranks = torch.cat(axis.all_gather(own, sizes=[1] * axis.size, site="test"))
        assert int(ranks[axis.rank]) == group.rank
        found.append([int(rank) for rank in ranks])
    return tuple(found)


@each_transport
@pytest.mark.parametrize("cp_ffn", ["data", "tensor"])
def test_axes_have_their_ranks_in_order(cp_ffn, transport):
    layout = ParallelConfig(tp=2, cp=2, cp_ffn=cp_ffn)
    found = run_ranks(layout, ranks_along, ranks_without_memory=TRANSPORTS[transport])
    cache = [[0, 2], [1, 3], [0, 2], [1, 3]]
    # By the part of the weights that each has: first all shards of the first tensor coordinate.
    tensor = [[0, 1], [0, 1], [2, 3], [2, 3]] if cp_ffn == "data" else [[0, 2, 1, 3]] * 4
    assert found == list(zip(tensor, cache, strict=True))


def count(group: RankGroup) -> dict[CollectiveKey, tuple[int, int]]:
    axis, rank = group.tensor, group.rank
    for num_rows in (4, 6):
        axis.all_reduce(torch.ones(num_rows, 12), site="mlp")
    axis.all_reduce(torch.ones(2, 12, dtype=torch.bfloat16), site="attention")
    axis.gather(torch.ones(5, 3), site="logits")
    sizes = list(range(axis.size))
    axis.gather(torch.ones(rank, 3), sizes=sizes, site="rows")
    axis.all_gather(torch.ones(rank, 3), sizes=sizes, site="heads")
    shapes = [(rank, 3)] * axis.size
    axis.all_to_all([torch.ones(size, 3) for size in sizes], shapes=shapes, site="partials")
    return {key: (count.num_calls, count.num_bytes) for key, count in group.traffic.totals().items()}


@each_transport
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_counters_tell_what_leaves_a_rank(num_ranks, transport):
    def ring(num_bytes: int) -> int:
        return 2 * (num_ranks - 1) * num_bytes // num_ranks

    row_bytes, num_rows = 3 * 4, sum(range(num_ranks))
    for rank, counts in enumerate(run_ranks(num_ranks, count, ranks_without_memory=TRANSPORTS[transport])):
        assert counts == {
            CollectiveKey("tensor", "all_reduce", "mlp"): (2, ring(4 * 12 * 4) + ring(6 * 12 * 4)),
            CollectiveKey("tensor", "all_reduce", "attention"): (1, ring(2 * 12 * 2)),
            CollectiveKey("tensor", "gather", "logits"): (1, 5 * row_bytes if rank > 0 else 0),
            CollectiveKey("tensor", "gather", "rows"): (1, rank * row_bytes),
            CollectiveKey("tensor", "all_gather", "heads"): (1, (num_ranks - 1) * rank * row_bytes),
            CollectiveKey("tensor", "all_to_all", "partials"): (1, (num_rows - rank) * row_bytes),
        }


def num_mappings(group: RankGroup) -> int:
    group.tensor.all_reduce(torch.ones(3), site="test")
    return sum("memfd:headway" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_shared_memory_has_no_name_by_which_it_could_stay():
    assert run_ranks(2, num_mappings) == [1, 1]
    assert not [path for path in Path("/dev/shm").iterdir() if "headway" in path.name]
