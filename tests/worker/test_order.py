"""From the controller's work to what a worker's engine and runner are given."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.core.cluster import Hardware
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.engine.config import EngineConfig
from headway.rpc.convert import load_order_to_pb
from headway.worker import computed_loading
from headway.worker.limits import engine_config
from headway.worker.load_call import LoadCall
from headway.worker.service import WorkerService
from headway.worker.servicer import WorkerServicer

HARDWARE = Hardware(device="cpu", name="test", num_threads=1, memory_bytes=1 << 30)
LAYOUTS = [
    ParallelConfig(),
    ParallelConfig(tp=2, pp=2),
    ParallelConfig(pp=2, stage_layers=(2, 1), cp=2),
    ParallelConfig(cp=4, cp_ffn="tensor"),
]


class Recorder:
    """Stands for the service and runners, and keeps what they and engines are given."""

    def __init__(self) -> None:
        self.orders: list[LoadOrder] = []
        self.configs: list[EngineConfig] = []
        self.pools: list[tuple[int, int]] = []
        self.num_populated = 0

    async def load(self, order: LoadOrder, *, call: LoadCall) -> None:
        self.orders.append(order)

    def runner(self, checkpoint: Any, *, num_blocks: int, num_host_blocks: int, **_: Any) -> object:
        self.pools.append((num_blocks, num_host_blocks))
        return SimpleNamespace(populate_cache=self.note_populated)

    def note_populated(self) -> None:
        self.num_populated += 1

    def engine_config(self, order: LoadOrder, spec: ModelSpec, *, runs_ahead: bool) -> EngineConfig:
        self.configs.append(engine_config(order, spec, runs_ahead=runs_ahead))
        return self.configs[-1]


class GroupLeader:
    def open(self, number: int, *, parallel: ParallelConfig) -> object:
        return object()


class GroupFollower:
    def add(self, number: int, shard: object) -> None: ...


class Groups:
    """Stands for the groups that ranks join: each is a member at once."""

    def __init__(self, **_: Any) -> None: ...

    def load(self, order: LoadOrder, *, call: LoadCall, load: Any) -> Any:
        group = SimpleNamespace(seen_by_model=lambda _: object())
        role = GroupLeader() if order.rank == 0 else GroupFollower()
        return load(order, SimpleNamespace(role=role, group=group, rendezvous=SimpleNamespace(number=0)))


async def order_for(layout: ParallelConfig, *, rank: int, directory: Path) -> LoadOrder:
    """As it arrives over the protocol."""
    work = LoadOrder(
        model="tiny",
        directory=str(directory),
        dtype="float32",
        num_blocks=64,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=256,
        enable_prefix_cache=True,
        num_host_blocks=32,
        parallel=layout,
        worker_ids=tuple(f"worker-{index}" for index in range(layout.num_ranks)),
        group_id="group-0",
    )
    recorder = Recorder()
    servicer = WorkerServicer(cast("WorkerService", recorder))
    request = load_order_to_pb(replace(work, plan_id="plan", rank=rank))
    async for _ in servicer.LoadModel(request, cast("Any", SimpleNamespace(invocation_metadata=tuple))):
        pass
    return recorder.orders[0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
async def test_each_rank_has_the_blocks_of_its_cache_shard_and_the_leaders_engine_all(
    layout: ParallelConfig, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(computed_loading, "ModelRunner", recorder.runner)
    monkeypatch.setattr(computed_loading, "ShardRunner", recorder.runner)
    monkeypatch.setattr(computed_loading, "engine_config", recorder.engine_config)
    monkeypatch.setattr(computed_loading, "check_parallel", lambda *_, **__: None)  # the tiny model has fewer layers
    monkeypatch.setattr(computed_loading, "RankRunner", lambda *_, **__: object())
    monkeypatch.setattr(computed_loading, "GroupLoading", Groups)
    monkeypatch.setattr(computed_loading, "Leader", GroupLeader)
    monkeypatch.setattr(computed_loading, "Follower", GroupFollower)
    loader = computed_loading.ComputedLoader(HARDWARE, address="127.0.0.1")
    for rank in range(layout.num_ranks):
        order = await order_for(layout, rank=rank, directory=tiny)
        assert (order.parallel, order.rank) == (layout, rank)
        loader.prepare(order, call=LoadCall())
    assert recorder.pools == [(64 // layout.cp, 32 // layout.cp)] * layout.num_ranks
    assert recorder.num_populated == layout.num_ranks
    (config,) = recorder.configs
    assert (config.num_blocks, config.num_host_blocks) == (64, 32)
    assert (config.num_micro_batches, config.num_shards) == (layout.pp, layout.cp)


async def test_every_rank_owns_the_shard_that_its_place_says(tiny: Path) -> None:
    order = await order_for(ParallelConfig(tp=2, pp=2, cp=2), rank=0, directory=tiny)
    assert order.shard_owners == tuple(
        tuple(f"worker-{rank}" for rank in range(8) if order.parallel.place(rank).shard == shard) for shard in range(2)
    )
    assert [len(owners) for owners in order.shard_owners] == [4, 4]
    assert (await order_for(ParallelConfig(), rank=0, directory=tiny)).shard_owners == (("worker-0",),)
