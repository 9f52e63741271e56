"""What ranks exchange by links, beside sums of torch's own."""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.train.ranks import told_by_ranks
from headway.core.errors import HeadwayError, UnavailableError
from headway.core.execution.execution import Action, ActionKind, Execution, RankList
from headway.train.gradients import Gradients
from headway.train.links import Links, rounds

SIZE = 3


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_two_meet_once_and_in_one_round(count: int) -> None:
    """A round of the one is a round of the other: so nobody waits for one who waits for somebody else."""
    met = [list(rounds(place, count)) for place in range(count)]
    assert [sorted(each) for each in met] == [[o for o in range(count) if o != place] for place in range(count)]
    waiting = [list(each) for each in met]
    while any(waiting):
        pairs = {(a, each[0]) for a, each in enumerate(waiting) if each and waiting[each[0]][:1] == [a]}
        assert pairs, waiting
        for a, _ in pairs:
            waiting[a].pop(0)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_are_added_up_and_gathered_in_place(count: int) -> None:
    ranks, given = tuple(range(count)), torch.rand(count, count * SIZE, dtype=torch.float64)

    def work(links: Links, rank: int) -> list[Tensor]:
        tensor = given[rank].clone()
        links.add_up_parts(tensor, ranks).wait("sums")
        summed = tensor[rank * SIZE : (rank + 1) * SIZE].clone()
        links.gather(tensor, ranks).wait("parts")
        row = links.gather_row(given[rank].view(count, SIZE), ranks)
        return [summed, tensor, links.gather_flat(summed, ranks), torch.stack(row)]

    whole = given.sum(0)
    for rank, found in enumerate(_on_each(count, work, groups=[ranks])):
        wanted = [whole[rank * SIZE : (rank + 1) * SIZE], whole, whole, given.view(count, count, SIZE)]
        for own, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(own, right)


def test_sums_of_overlapping_sets_of_ranks_may_begin_in_any_order() -> None:
    """Two ranks are in both sets, and begin with another one each."""
    sets = [(0, 1, 2), (1, 2, 3)]
    names = {ranks: f"of {ranks}" for ranks in sets}
    reduces = [Action(kind=ActionKind.REDUCE, parameters=(names[r],), ranks=r, shards=True) for r in sets]
    lists = [[each for each in reduces[:: -1 if rank == 1 else 1] if rank in each.ranks] for rank in range(4)]
    execution = Execution(
        batch=1, losses=(), seeds=(), splits=False, stages=(), values=(), parts=(),
        ranks=tuple(RankList(rank=rank, actions=tuple(actions)) for rank, actions in enumerate(lists)),
    )  # fmt: skip

    def work(links: Links, rank: int) -> list[Tensor]:
        own = lists[rank]
        gradients = Gradients(execution, rank, {name: torch.zeros(SIZE) for each in own for name in each.parameters})
        gradients.clear()
        for each in own:
            gradients.by_name[names[each.ranks]].fill_(rank)
            gradients.add_up(each.ranks, links)
        gradients.wait()
        return [shard.gradient for shard in gradients.shards]

    for rank, found in enumerate(_on_each(4, work, groups=sets)):
        assert [each.tolist() for each in found] == [[float(sum(each.ranks))] for each in lists[rank]]


@pytest.mark.parametrize("count", [3, 4])
def test_several_sums_of_the_same_ranks_may_be_on_their_way(count: int) -> None:
    """Whoever sits out a round is ahead of the others; what two exchange is in one order on both all the same."""
    ranks, given = tuple(range(count)), torch.rand(3, count, count * SIZE, dtype=torch.float64)

    def work(links: Links, rank: int) -> list[Tensor]:
        tensors = [each[rank].clone() for each in given]
        for coming in [links.add_up_parts(each, ranks) for each in tensors]:
            coming.wait("sums")
        return [each[rank * SIZE : (rank + 1) * SIZE] for each in tensors]

    for rank, found in enumerate(_on_each(count, work, groups=[ranks])):
        for own, summands in zip(found, given, strict=True):
            torch.testing.assert_close(own, summands.sum(0)[rank * SIZE : (rank + 1) * SIZE])


def test_who_has_gone_before_something_begins_is_named(tmp_path: Path) -> None:
    """As one whose answer is waited for: the run begins again at its last checkpoint, and is at no fault."""
    errors, _ = told_by_ranks(_left_behind, 2, str(tmp_path / "store"))
    assert len(errors) == len(_EXCHANGES)
    for error in errors:
        assert re.match("UnavailableError: rank 1 did not answer", error), error


_EXCHANGES: list[Callable[[Links], object]] = [
    lambda links: links.send(torch.ones(SIZE), 1, 0),
    lambda links: links.receive(torch.ones(SIZE), 1, 0),
    lambda links: links.add_up(torch.ones(SIZE), (0, 1)).wait("a sum"),
    lambda links: links.add_up_parts(torch.ones(2 * SIZE), (0, 1)).wait("a sum of parts"),
    lambda links: links.gather(torch.ones(2 * SIZE), (0, 1)).wait("parts"),
    lambda links: links.gather_row(torch.ones(SIZE), (0, 1)),
    lambda links: links.add_up_row(torch.ones(SIZE), (0, 1)),
    lambda links: links.exchange_row(torch.ones(2, SIZE), (0, 1)),
]


def _left_behind(rank: int, pipe: Connection, store: str) -> None:
    """Rank 1 goes; rank 0 tells what becomes of whatever it begins then."""
    links = Links(rank, 2, store=dist.FileStore(store, 2), groups=[(0, 1)], rows=[(0, 1)], timeout_s=60)
    links.wait_for_all()
    if rank == 1:
        pipe.send([])
        os._exit(0)
    with pytest.raises(UnavailableError):
        links.add_up_everywhere(torch.ones(1))  # until the other one has gone
    errors = []
    for exchange in _EXCHANGES:
        try:
            exchange(links)
        except (RuntimeError, HeadwayError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    pipe.send(errors)


def _on_each(
    count: int, work: Callable[[Links, int], list[Tensor]], *, groups: list[tuple[int, ...]]
) -> list[list[Tensor]]:
    """What each rank gets, a thread each."""
    store = dist.HashStore()

    def run(rank: int) -> list[Tensor]:
        with _links(rank, count, store, groups) as links:
            return work(links, rank)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@contextmanager
def _links(rank: int, count: int, store: dist.Store, groups: list[tuple[int, ...]]) -> Iterator[Links]:
    links = Links(rank, count, store=store, groups=groups, rows=groups, timeout_s=60)
    with ExitStack() as stack:
        stack.callback(links.close)
        yield links
        links.wait_for_all()
