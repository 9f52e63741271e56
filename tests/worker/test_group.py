"""Two worker processes as one group, over gRPC."""

import asyncio
import signal
from pathlib import Path

import grpc
import pytest

from headway.core.errors import FailedPreconditionError
from headway.v1 import common_pb2, worker_pb2
from tests.checkpoints import make_checkpoint
from tests.worker.group import (
    TIMEOUT_S,
    Pair,
    WorkerProcess,
    error_of,
    load,
    load_group,
    of_group,
    order,
    outputs_of,
    submit,
    tokens_of,
    until,
)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("other"), "qwen3")


async def test_a_group_streams_what_one_worker_does_and_loads_another_model_afterwards(
    pair: Pair, tiny: Path, other: Path
) -> None:
    leader, follower = pair
    await load(leader, order(tiny))
    alone = await tokens_of(leader)
    answers = await load_group(pair, order(tiny), order(tiny))
    assert all(isinstance(answer, list) and answer[-1].done for answer in answers), answers
    assert await tokens_of(leader) == alone
    first_epoch = (await leader.describe()).group_epoch

    assert (await leader.stub.Drain(worker_pb2.DrainRequest(deadline_s=5))).num_cancelled == 0
    with pytest.raises(grpc.aio.AioRpcError, match="on another group of workers than 'other'"):
        await load_group(pair, order(other, "other"), order(other, "other"), pp=2)
    await asyncio.gather(*(worker.stub.UnloadModel(worker_pb2.UnloadModelRequest(model="tiny")) for worker in pair))
    await load_group(pair, order(other, "other"), order(other, "other"))
    assert len(await tokens_of(leader, model="other")) == 24
    epochs = {(await worker.describe()).group_epoch for worker in pair}
    assert len(epochs) == 1
    assert first_epoch not in epochs

    await asyncio.gather(*(worker.stub.UnloadModel(worker_pb2.UnloadModelRequest(model="other")) for worker in pair))
    await asyncio.gather(load(leader, order(tiny)), load(follower, order(tiny)))
    assert await tokens_of(leader) == await tokens_of(follower) == alone


async def test_a_pipeline_streams_what_one_worker_does(pair: Pair, tiny: Path) -> None:
    leader, _ = pair
    await load(leader, order(tiny))
    alone = await tokens_of(leader)
    answers = await load_group(pair, order(tiny), order(tiny), pp=2)
    assert all(isinstance(answer, list) and answer[-1].done for answer in answers), answers
    assert await tokens_of(leader) == alone


async def test_every_rank_says_what_it_is_and_only_the_leader_takes_requests(pair: Pair, tiny: Path) -> None:
    leader, follower = pair
    await load_group(pair, order(tiny), order(tiny))
    for rank, (worker, state) in enumerate(zip(pair, ("ready", "rank"), strict=True)):
        told = await worker.describe()
        assert (told.state, told.model, told.rank, told.group_id) == (state, "tiny", rank, "group-7")
        assert told.parallel == common_pb2.ParallelConfig(tp=2, pp=1, cp=1, cp_ffn="data")
        assert told.weight_bytes > 0
        await _until_lease(worker, (state, "tiny", rank, "group-7"))
    report = await follower.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=1)).read()
    assert (report.state, report.model, report.num_blocks) == ("rank", "tiny", 0)

    infer = worker_pb2.InferSequencesRequest(request_id="i", model="tiny")
    infer.sequences.add(token_ids=[5])
    timing = worker_pb2.MeasureStepRequest(prefill_tokens=16, num_decodes=2, context_tokens=16)
    for answer in await asyncio.gather(
        follower.stub.InferSequences(infer),
        follower.stub.MeasureStep(timing),
        outputs_of(follower, submit("r")),
        return_exceptions=True,
    ):
        error = error_of(answer)
        assert isinstance(error, FailedPreconditionError)
        assert "worker-0" in error.message
    assert (await follower.stub.Drain(worker_pb2.DrainRequest(deadline_s=5))).num_cancelled == 0
    assert (await leader.stub.MeasureStep(timing)).step_s > 0


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_rank_that_cannot_load_is_named_by_all_and_leaves_nothing_behind(
    pair: Pair, tiny: Path, tmp_path: Path, failing: int
) -> None:
    requests = [order(tiny), order(tiny)]
    requests[failing].directory = str(tmp_path)
    answers = await load_group(pair, *requests)
    leaders_error, _ = map(error_of, answers)
    assert "config.json" in leaders_error.message
    for worker in pair:
        told = await worker.describe()
        assert (told.state, told.model) == ("starting", "")
    await load_group(pair, order(tiny), order(tiny))
    assert len(await tokens_of(pair[0])) == 24


async def test_ranks_do_not_wait_for_one_whose_caller_has_gone_away(pair: Pair, tiny: Path) -> None:
    leader, follower = pair
    requests = [order(tiny), order(tiny)]
    of_group(pair, *requests)
    leading = leader.stub.LoadModel(requests[0])
    requests[1].rendezvous = (await leading.read()).rendezvous
    leading.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await load(follower, requests[1])
    assert "Rank 0" in error_of(caught.value).message
    for worker in pair:
        await until(worker.describe, lambda told: told.state == "starting")


async def test_a_killed_rank_ends_its_leaders_streams_as_unavailable(pair: Pair, tiny: Path) -> None:
    leader, follower = pair
    await load_group(pair, order(tiny), order(tiny))
    outputs = asyncio.create_task(_endless(leader))
    await until(leader.describe, lambda told: told.num_steps > 3)
    follower.send_signal(signal.SIGKILL)
    error = (await asyncio.wait_for(outputs, TIMEOUT_S))[-1].error
    assert error.code == "unavailable"
    assert await leader.wait() == 1
    await follower.wait()


async def test_a_stopped_rank_ends_its_leaders_streams_after_the_collective_timeout(pair: Pair, tiny: Path) -> None:
    leader, follower = pair
    await load_group(pair, order(tiny), order(tiny), collective_timeout_s=5)
    outputs = asyncio.create_task(_endless(leader))
    await until(leader.describe, lambda told: told.num_steps > 3)
    follower.send_signal(signal.SIGSTOP)
    error = (await asyncio.wait_for(outputs, TIMEOUT_S))[-1].error
    assert error.code == "unavailable"
    assert await leader.wait() == 1
    follower.send_signal(signal.SIGKILL)
    await follower.wait()


async def test_a_killed_leader_takes_its_ranks_with_it(pair: Pair, tiny: Path) -> None:
    leader, follower = pair
    await load_group(pair, order(tiny), order(tiny))
    leader.send_signal(signal.SIGKILL)
    assert await follower.wait() == 1
    await leader.wait()


async def test_workers_that_are_told_to_end_do_so_in_order(pair: Pair, tiny: Path) -> None:
    await load_group(pair, order(tiny), order(tiny))
    for worker in pair:
        worker.send_signal(signal.SIGTERM)
    assert [await worker.wait() for worker in pair] == [0, 0]


async def _endless(leader: WorkerProcess) -> list[worker_pb2.SequenceOutput]:
    """What a sequence brings that is not done before something happens to it."""
    return await outputs_of(leader, submit("r", max_tokens=460))


async def _until_lease(worker: WorkerProcess, expected: tuple[str, str, int, str]) -> None:
    async def lease() -> tuple[str, str, int, str] | None:
        found = await worker.lease()
        return (found.state, "".join(found.models), found.rank, found.group_id) if found else None

    await until(lease, lambda lease: lease == expected)
