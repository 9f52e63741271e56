"""The worker's gRPC service over a real socket."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from headway.core.errors import HeadwayError
from headway.core.grammar import grammar_of
from headway.core.request import GenerationRequest, Guide, SamplingParams
from headway.engine.batch import RunnerLostError, StepResult
from headway.rpc.status import carries_error, error_from_rpc
from headway.v1 import common_pb2, worker_pb2
from tests.worker.conftest import NUM_BLOCKS, Bench


def submit(
    request_id: str, *, max_tokens: int = 8, prompt: range = range(5, 45), model: str = "tiny"
) -> worker_pb2.GenerateTokensRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return worker_pb2.GenerateTokensRequest(
        submit=worker_pb2.SubmitSequence(request_id=request_id, model=model, prompt_token_ids=prompt, sampling=sampling)
    )


def cancel(request_id: str) -> object:
    return worker_pb2.GenerateTokensRequest(cancel=worker_pb2.CancelSequence(request_id=request_id))


async def run(bench: Bench, *requests: object) -> dict[str, list[worker_pb2.SequenceOutput]]:
    """Sends the requests, half-closes, and collects the outputs by sequence."""

    async def send() -> AsyncIterator[object]:
        for request in requests:
            yield request

    outputs: dict[str, list[worker_pb2.SequenceOutput]] = {}
    async for message in bench.stub.GenerateTokens(send()):
        for output in message.outputs:
            outputs.setdefault(output.request_id, []).append(output)
    return outputs


async def rest_of(stream: grpc.aio.StreamStreamCall) -> list[worker_pb2.SequenceOutput]:
    """What a stream that was read with `read` still brings."""
    outputs: list[worker_pb2.SequenceOutput] = []
    while (message := await stream.read()) is not grpc.aio.EOF:
        outputs += message.outputs
    return outputs


async def until_idle(bench: Bench) -> None:
    loaded = bench.service.require_loaded()
    await asyncio.wait_for(loaded.sessions.wait_until_idle(), 60)
    stats = await loaded.engine.thread.call(lambda engine: engine.stats())
    assert stats.num_used_blocks == 0
    await loaded.engine.thread.call(lambda engine: engine.check_integrity())


async def test_many_sequences_on_one_stream_end_with_their_tokens(bench: Bench) -> None:
    outputs = await run(bench, *(submit(f"r{i}", max_tokens=4 + i) for i in range(6)))
    for i in range(6):
        found = outputs[f"r{i}"]
        assert sum(len(output.token_ids) for output in found) == 4 + i
        assert [output.finish_reason for output in found[:-1]] == [0] * (len(found) - 1)
        assert found[-1].finish_reason == common_pb2.FINISH_REASON_LENGTH
    await until_idle(bench)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (submit("r", model="other"), "not_found"),
        (submit("r", prompt=range(3, 900)), "invalid_argument"),
        (submit("r", prompt=range(0)), "invalid_argument"),
        (submit("r", prompt=range(10_000_000, 10_000_001)), "invalid_argument"),
    ],
)
async def test_a_sequence_that_cannot_run_is_refused_and_the_stream_goes_on(
    bench: Bench, request_: object, code: str
) -> None:
    outputs = await run(bench, request_, submit("good"))
    assert outputs["r"][-1].error.code == code
    assert outputs["r"][-1].error.message
    assert sum(len(output.token_ids) for output in outputs["good"]) == 8


async def test_guides_are_compiled_beside_the_engine_and_refused_where_they_are_too_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def compiled(guide: Guide) -> str:
        threads.append(threading.current_thread().name)
        return grammar_of(guide)

    monkeypatch.setattr("headway.runner.guide.grammar_of", compiled)
    hard, easy, again = submit("hard"), submit("easy"), submit("again")
    hard.submit.sampling.guide.MergeFrom(common_pb2.Guide(kind="regex", text="(a{1000}){1000}"))
    for request in (easy, again):
        request.submit.sampling.ignore_eos = False
        request.submit.sampling.guide.MergeFrom(common_pb2.Guide(kind="regex", text="[ab]{2}"))
    outputs = await run(bench, hard, easy, again, submit("good"))
    assert outputs["hard"][-1].error.code == "invalid_argument"
    assert "regex cannot be followed" in outputs["hard"][-1].error.message
    assert [outputs[name][-1].HasField("error") for name in ("easy", "again", "good")] == [False] * 3
    assert len(threads) == 2
    assert "engine" not in threads


async def test_a_duplicate_id_is_refused_while_the_first_runs(bench: Bench) -> None:
    outputs = await run(bench, submit("r", max_tokens=64), submit("r"))
    errors = [output for output in outputs["r"] if output.HasField("error")]
    assert [output.error.code for output in errors] == ["already_exists"]


async def test_a_cancelled_sequence_costs_at_most_one_more_step(bench: Bench) -> None:
    loaded = bench.service.require_loaded()
    session = bench.service.open_session()
    sampling = SamplingParams(max_tokens=400, temperature=0.0, ignore_eos=True)
    request = GenerationRequest(request_id="r", model="tiny", prompt_token_ids=tuple(range(5, 45)), sampling=sampling)
    bench.service.submit(session, [request], traceparent="")
    steps = session.steps()
    for _ in range(3):
        await anext(steps)
    counted = asyncio.ensure_future(loaded.engine.thread.call(lambda engine: engine.stats().num_steps))
    await asyncio.sleep(0)  # the count is on its way; the cancellation is right behind it
    session.cancel(["r"])
    await until_idle(bench)
    num_steps = (await loaded.engine.thread.call(lambda engine: engine.stats())).num_steps
    assert num_steps - await counted <= 1


async def test_a_cancel_message_ends_a_sequence_without_a_word(bench: Bench) -> None:
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=400))
    for _ in range(3):
        await stream.read()
    await stream.write(cancel("r"))
    await until_idle(bench)
    await stream.done_writing()
    assert all(output.finish_reason == 0 for output in await rest_of(stream))


async def test_one_message_ends_many_sequences(bench: Bench) -> None:
    stream, names = bench.stub.GenerateTokens(), [f"r{number}" for number in range(8)]
    for name in names:
        await stream.write(submit(name, max_tokens=400))
    seen = set[str]()
    while seen < set(names):
        seen |= {output.request_id for output in (await stream.read()).outputs}
    gone = worker_pb2.CancelSequence(request_ids=names)
    await stream.write(worker_pb2.GenerateTokensRequest(cancel=gone))
    await until_idle(bench)
    await stream.done_writing()
    assert all(output.finish_reason == 0 for output in await rest_of(stream))


async def test_a_broken_stream_cancels_its_sequences_only(bench: Bench) -> None:
    broken, kept = bench.stub.GenerateTokens(), bench.stub.GenerateTokens()
    await broken.write(submit("gone", max_tokens=450))
    await kept.write(submit("stays", max_tokens=120))
    await broken.read()
    broken.cancel()
    await kept.done_writing()
    tokens = [token async for message in kept for output in message.outputs for token in output.token_ids]
    assert len(tokens) == 120
    await until_idle(bench)


async def test_drain_lets_sequences_end_and_takes_no_new_ones(bench: Bench) -> None:
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=40))
    await stream.read()
    drained = asyncio.create_task(_drain(bench, 20.0))
    while bench.service.state != "draining":
        await bench.service.next_change()
    await stream.write(submit("late"))
    await stream.done_writing()
    outputs = await rest_of(stream)
    assert (await drained) == 0
    assert [output.error.code for output in outputs if output.request_id == "late"] == ["unavailable"]
    assert outputs[-1].finish_reason in (common_pb2.FINISH_REASON_LENGTH, common_pb2.FINISH_REASON_ERROR)


async def test_a_drain_deadline_cuts_sequences_off(bench: Bench) -> None:
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=460))
    await stream.read()
    assert await _drain(bench, 0.02) == 1
    await until_idle(bench)


async def _drain(bench: Bench, deadline_s: float) -> int:
    response = await bench.stub.Drain(worker_pb2.DrainRequest(deadline_s=deadline_s))
    return response.num_cancelled


async def test_a_worker_that_ends_says_so_on_its_streams(bench: Bench) -> None:
    """Callers know by that that nobody died of what they had sent last, and that nobody has read it."""
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("a", max_tokens=50))
    await stream.read()
    await bench.service.stop()
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await rest_of(stream)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert carries_error(ended.value)
    assert error_from_rpc(ended.value).message == "The worker is going away."


async def test_a_stream_that_cannot_be_read_any_more_ends_with_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit_nothing(*arguments: object, **options: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(bench.service, "submit", submit_nothing)
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("a"))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await asyncio.wait_for(rest_of(stream), 10.0)
    assert ended.value.code() is grpc.StatusCode.INTERNAL


async def test_block_events_start_with_a_snapshot_and_go_on_without_gaps(bench: Bench) -> None:
    await run(bench, submit("a", prompt=range(5, 45)))
    stream = bench.stub.WatchBlocks(worker_pb2.WatchBlocksRequest())
    snapshot = await stream.read()
    assert snapshot.snapshot
    assert len(snapshot.events) == 2  # 40 prompt tokens: two full blocks
    await run(bench, submit("b", prompt=range(105, 140)))
    events = await stream.read()
    assert not events.snapshot
    assert len(events.events) == events.sequence_number - snapshot.sequence_number
    stream.cancel()
    resumed = bench.stub.WatchBlocks(
        worker_pb2.WatchBlocksRequest(epoch=snapshot.epoch, after_sequence_number=snapshot.sequence_number)
    )
    again = await resumed.read()
    assert (again.snapshot, again.sequence_number) == (False, events.sequence_number)
    resumed.cancel()


async def test_load_reports_follow_what_runs(bench: Bench) -> None:
    reports = bench.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=1))
    idle = await reports.read()
    assert (idle.num_running, idle.num_blocks, idle.num_free_blocks) == (0, NUM_BLOCKS, NUM_BLOCKS)
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=200))
    while (report := await reports.read()).num_running == 0:
        pass
    assert report.num_context_tokens > 0
    stream.cancel()
    while (await reports.read()).num_free_blocks != NUM_BLOCKS:
        pass
    reports.cancel()


async def test_steps_are_measured_only_when_idle(bench: Bench) -> None:
    request = worker_pb2.MeasureStepRequest(prefill_tokens=32, num_decodes=4, context_tokens=32)
    response = await bench.stub.MeasureStep(request)
    assert 0 < response.step_s < 5
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=300))
    await stream.read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await bench.stub.MeasureStep(request)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    stream.cancel()


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (worker_pb2.MeasureStepRequest(prefill_tokens=-1), "prefill_tokens"),
        (worker_pb2.MeasureStepRequest(num_decodes=2**31 - 1), "num_decodes"),
        (worker_pb2.MeasureStepRequest(num_decodes=1, context_tokens=2**31 - 1), "context_tokens"),
        (worker_pb2.DrainRequest(deadline_s=math.nan), "deadline_s"),
        (worker_pb2.DrainRequest(deadline_s=math.inf), "deadline_s"),
        (worker_pb2.DrainRequest(deadline_s=-1.0), "deadline_s"),
    ],
)
async def test_numbers_that_cannot_be_are_refused_by_name(
    bench: Bench, message: worker_pb2.MeasureStepRequest | worker_pb2.DrainRequest, field: str
) -> None:
    call = bench.stub.Drain if isinstance(message, worker_pb2.DrainRequest) else bench.stub.MeasureStep
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(message)
    assert error_from_rpc(caught.value).field == field
    assert len((await run(bench, submit("r")))["r"]) == 8


@pytest.mark.parametrize(
    ("numbers", "field"),
    [
        ({"num_blocks": 2**31 - 1}, "num_blocks"),
        ({"num_blocks": 64, "num_host_blocks": 2**31 - 1}, "num_host_blocks"),
        ({"num_blocks": 64, "num_host_blocks": -1}, "num_host_blocks"),
        ({"num_blocks": -1}, "num_blocks"),
    ],
)
async def test_a_cache_that_does_not_fit_is_refused_before_it_is_made(
    bench: Bench, tiny: Path, numbers: dict[str, int], field: str
) -> None:
    limits = {"block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 512}
    order = worker_pb2.LoadModelRequest(model="other", directory=str(tiny), **limits, **numbers)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [message async for message in bench.stub.LoadModel(order)]
    assert error_from_rpc(caught.value).field == field
    assert len((await run(bench, submit("r")))["r"]) == 8


async def test_loading_again_ends_what_runs_and_leaves_streams_open(bench: Bench, tiny: Path) -> None:
    stream = bench.stub.GenerateTokens()
    await stream.write(submit("r", max_tokens=450))
    await stream.read()
    order = worker_pb2.LoadModelRequest(
        model="tiny",
        directory=str(tiny),
        num_blocks=NUM_BLOCKS,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=512,
    )
    [message async for message in bench.stub.LoadModel(order)]
    await stream.done_writing()
    assert (await rest_of(stream))[-1].error.code == "unavailable"
    assert len((await run(bench, submit("r")))["r"]) == 8


async def test_calls_before_a_model_is_loaded_are_refused(unloaded: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run(unloaded, submit("r"))
    error = error_from_rpc(caught.value)
    assert isinstance(error, HeadwayError)
    assert error.retry_after_s == 1.0


async def test_a_checkpoint_that_does_not_load_leaves_the_worker_usable(
    unloaded: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    order = worker_pb2.LoadModelRequest(model="m", directory=str(tmp_path_factory.mktemp("empty")), num_blocks=4)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [message async for message in unloaded.stub.LoadModel(order)]
    assert "config.json" in str(error_from_rpc(caught.value))
    assert unloaded.states[-1] == "starting"


async def test_a_failing_step_ends_its_requests_with_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = bench.service.require_generator()
    runner = loaded.engine.runner
    compute = runner.finish
    num_failures = 2  # the second time it was alone

    def finish() -> StepResult:
        nonlocal num_failures
        result = compute()
        if num_failures:
            num_failures -= 1
            raise RuntimeError("out of registers")
        return result

    monkeypatch.setattr(runner, "finish", finish)
    outputs = await run(bench, submit("r"))
    assert outputs["r"][-1].finish_reason == common_pb2.FINISH_REASON_ERROR
    assert outputs["r"][-1].error.code == "internal"
    assert len((await run(bench, submit("next")))["next"]) == 8
    num_failures = 10
    await run(bench, submit("a"))
    await run(bench, submit("b"))
    await run(bench, submit("c"))
    await loaded.engine.thread.join()
    await asyncio.sleep(0)  # what the thread said last is delivered
    assert "crashed" in bench.states


async def test_requests_of_a_lost_runner_are_to_be_taken_elsewhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish() -> StepResult:
        raise RunnerLostError("rank 1 is gone")

    monkeypatch.setattr(bench.service.require_loaded().engine.runner, "finish", finish)
    outputs = await run(bench, submit("r"))
    assert outputs["r"][-1].error.code == "unavailable"
    assert "crashed" in bench.states
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run(bench, submit("late"))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
