"""Two real workers that share a cache, and the real service that decides how; it may die, and they do not notice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from headway.core.cache_sharding import CacheSharding
from headway.rpc.convert import from_pb
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import common_pb2, kvcache_pb2, kvcache_pb2_grpc, worker_pb2
from tests.checkpoints import make_checkpoint
from tests.kvcache.process import kvcache_process
from tests.worker.group import WorkerProcess, WorkerProcesses, load, load_group, order, submit, until

Pair = tuple[WorkerProcess, WorkerProcess]

BLOCKS_PER_RANK = 140
NUM_TOKENS = 3000  # more than one rank has blocks for
REQUEST_ID = "long"


class Stream:
    """A sequence that decodes, and the tokens that have come so far."""

    def __init__(self, leader: WorkerProcess, *, max_tokens: int = NUM_TOKENS) -> None:
        self.tokens: list[int] = []
        self._is_more = asyncio.Event()
        self._task = asyncio.create_task(self._read(leader, max_tokens))

    async def reach(self, num_tokens: int) -> None:
        async with asyncio.timeout(60):
            while len(self.tokens) < num_tokens:
                assert not self._task.done(), self._task.exception()
                self._is_more.clear()
                await self._is_more.wait()

    async def all(self) -> list[int]:
        await self._task
        return self.tokens

    async def _read(self, leader: WorkerProcess, max_tokens: int) -> None:
        async def requests() -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
            yield submit(REQUEST_ID, max_tokens=max_tokens)

        try:
            async for message in leader.stub.GenerateTokens(requests()):
                for output in message.outputs:
                    assert not output.HasField("error"), output
                    self.tokens += output.token_ids
                self._is_more.set()
        finally:
            self._is_more.set()


def request_of(directory: Path) -> worker_pb2.LoadModelRequest:
    request = order(directory)
    request.num_blocks, request.max_model_len = 2 * BLOCKS_PER_RANK, NUM_TOKENS + 64
    return request


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama", max_position_embeddings=4096)


@pytest.fixture(scope="module")
def processes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcesses]:
    processes = WorkerProcesses(redis_url=redis_url, directory=tmp_path_factory.mktemp("logs"))
    yield processes
    processes.kill()


@pytest.fixture(scope="module")
def expected(processes: WorkerProcesses, tiny: Path) -> list[int]:
    """What one worker says that holds all of it."""

    async def answer() -> list[int]:
        async with processes.alive("worker-0") as (alone,):
            await load(alone, request_of(tiny))
            return await Stream(alone).all()

    return asyncio.run(answer())


@pytest.fixture
async def pair(processes: WorkerProcesses, tiny: Path, expected: list[int]) -> AsyncIterator[Pair]:
    assert len(expected) == NUM_TOKENS > 16 * BLOCKS_PER_RANK
    async with processes.alive("worker-0", "worker-1") as (leader, follower):
        answers = await load_group((leader, follower), request_of(tiny), request_of(tiny), cp=2)
        assert all(isinstance(answer, list) and answer[-1].done for answer in answers), answers
        yield leader, follower


async def sharding_of(leader: WorkerProcess) -> CacheSharding:
    response = await leader.stub.GetSharding(worker_pb2.GetShardingRequest())
    return from_pb(response.sharding, CacheSharding)


async def set_weights(leader: WorkerProcess, *weights: float) -> None:
    epoch = (await sharding_of(leader)).epoch
    await leader.stub.SetSharding(worker_pb2.SetShardingRequest(epoch=epoch, weights=weights))


async def num_moved(leader: WorkerProcess) -> int:
    return (await leader.stub.GetBlocks(worker_pb2.GetBlocksRequest())).usage.num_moved_blocks


@asynccontextmanager
async def asking(
    process: asyncio.subprocess.Process, redis_url: str, namespace: str
) -> "AsyncIterator[kvcache_pb2_grpc.KvCacheServiceAsyncStub]":
    """A stub to a service, once it has looked at the workers."""
    database = Database.connect(redis_url, namespace=namespace)
    membership = Membership(database)

    async def find() -> str:
        members = await membership.members("kvcache")
        return next((member.endpoint for member in members if member.pid == process.pid), "")

    async with grpc.aio.insecure_channel(await until(find, bool)) as channel:
        stub: kvcache_pb2_grpc.KvCacheServiceAsyncStub = kvcache_pb2_grpc.KvCacheServiceStub(channel)
        await until(
            lambda: stub.GetCapacity(kvcache_pb2.GetCapacityRequest()),
            lambda capacity: any(worker.shards for worker in capacity.workers),
        )
        yield stub
    await database.close()


async def shown(stub: "kvcache_pb2_grpc.KvCacheServiceAsyncStub") -> common_pb2.SequenceBlocks:
    response = await stub.DescribeRequest(kvcache_pb2.DescribeRequestRequest(request_id=REQUEST_ID))
    (part,) = response.parts
    (sequence,) = part.sequences
    return sequence


def check_map(sequence: common_pb2.SequenceBlocks) -> None:
    """Every computed token has one owner, and either worker owns some."""
    ends = [0, *(span.stop for span in sequence.ranges)]
    assert [span.start for span in sequence.ranges] == ends[:-1]
    assert ends[-1] == sequence.num_computed_tokens
    assert {(span.shard, *span.worker_ids) for span in sequence.ranges} == {(0, "worker-0"), (1, "worker-1")}


async def test_kill_9_of_the_service_disturbs_nothing_and_the_next_one_goes_on_from_the_weights(
    pair: Pair, processes: WorkerProcesses, redis_url: str, expected: list[int]
) -> None:
    leader, _ = pair
    await set_weights(leader, 0.6, 0.4)
    # So seldom that it has measured nothing, and has no reason to change them.
    serving = partial(kvcache_process, redis_url, processes.namespace, "--sharding-every-s", "600")
    stream = Stream(leader)
    async with serving() as service, asking(service, redis_url, processes.namespace) as stub:
        check_map(await shown(stub))
        service.kill()
        await service.wait()
    await stream.reach(len(stream.tokens) + 100)
    async with serving() as service, asking(service, redis_url, processes.namespace) as stub:
        check_map(await shown(stub))
        (worker,) = (await stub.GetCapacity(kvcache_pb2.GetCapacityRequest())).workers
        assert [shard.weight for shard in worker.shards] == pytest.approx([0.6, 0.4])
    assert (await sharding_of(leader)).weights == pytest.approx((0.6, 0.4))
    assert await stream.all() == expected


async def test_a_lopsided_cache_is_put_right_while_a_long_sequence_decodes(
    pair: Pair, processes: WorkerProcesses, redis_url: str, expected: list[int]
) -> None:
    leader, _ = pair
    async with (
        kvcache_process(redis_url, processes.namespace, "--sharding-every-s", "0.2") as service,
        asking(service, redis_url, processes.namespace),
    ):
        moved = await num_moved(leader)
        stream = Stream(leader)
        await stream.reach(300)
        await set_weights(leader, 1, 0)
        await until(lambda: sharding_of(leader), lambda sharding: min(sharding.weights) > 0.1)
        await until(lambda: num_moved(leader), lambda num: num > moved)
        assert await stream.all() == expected


async def test_ranks_tell_what_reading_their_shards_takes_and_refuse_what_is_not_meant_for_them(pair: Pair) -> None:
    leader, follower = pair
    await Stream(leader, max_tokens=100).all()
    for worker in pair:
        work = (await sharding_of(worker)).work
        assert work.num_calls >= 2 * 100  # layers
        assert work.num_keys > 100 * 100 / 2
        assert work.seconds > 0
    assert (await sharding_of(follower)).shards == ()
    epoch = (await sharding_of(leader)).epoch
    for worker, request in [
        (leader, worker_pb2.SetShardingRequest(epoch="another", weights=[1, 1])),
        (follower, worker_pb2.SetShardingRequest(epoch=epoch, weights=[1, 1])),
    ]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.stub.SetSharding(request)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await leader.stub.SetSharding(worker_pb2.SetShardingRequest(epoch=epoch, weights=[1, 1, 1]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
