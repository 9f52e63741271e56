"""A worker whose model does not generate, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from headway.core.errors import HeadwayError
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2
from tests.encoders import make_encoder
from tests.worker.conftest import Bench


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"), "bert")


def load_order(encoder: Path, *, backend: str = "") -> worker_pb2.LoadModelRequest:
    return worker_pb2.LoadModelRequest(
        plan_id="plan",
        model="bert",
        directory=str(encoder),
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=128,
        backend=backend,
    )


@pytest.fixture
async def infer(unloaded: Bench, encoder: Path) -> Bench:
    order = load_order(encoder)
    messages = [message async for message in unloaded.stub.LoadModel(order)]
    assert messages[-1].done
    return unloaded


def request(
    request_id: str, *, lengths: tuple[int, ...] = (5, 9), model: str = "bert"
) -> worker_pb2.InferSequencesRequest:
    sequences = [worker_pb2.InferSequence(token_ids=range(6, 6 + length)) for length in lengths]
    return worker_pb2.InferSequencesRequest(request_id=request_id, model=model, sequences=sequences)


async def fault_of(call: "grpc.aio.UnaryUnaryCall[object, object]") -> HeadwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value)


async def test_calls_that_arrive_together_get_their_own_vectors(infer: Bench) -> None:
    lengths = [(3, 40), (7,), (40, 3, 12), (64,)] * 4
    calls = [infer.stub.InferSequences(request(str(i), lengths=each)) for i, each in enumerate(lengths)]
    for each, response in zip(lengths, await asyncio.gather(*calls), strict=True):
        assert [len(vector) for vector in response.vectors] == [4 * 64] * len(each)
        alone = await infer.stub.InferSequences(request("alone", lengths=each[:1]))
        together, expected = (np.frombuffer(r.vectors[0], "<f4") for r in (response, alone))
        np.testing.assert_allclose(together, expected, rtol=0, atol=1e-6)
    assert infer.service.require_encoder().num_steps < sum(map(len, lengths)) + len(lengths)


async def test_it_says_what_it_has_loaded_and_how_busy_it_is(infer: Bench) -> None:
    worker = await infer.stub.GetWorker(worker_pb2.GetWorkerRequest())
    assert (worker.model, worker.state, worker.num_blocks) == ("bert", "ready", 0)
    assert worker.weight_bytes > 0
    async for load in infer.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=10)):
        assert (load.model, load.num_running, load.num_blocks, load.max_model_len) == ("bert", 0, 0, 128)
        break
    async for blocks in infer.stub.WatchBlocks(worker_pb2.WatchBlocksRequest()):
        assert blocks.snapshot
        assert not blocks.events
        break


async def test_a_cancelled_call_takes_its_request_back(infer: Bench) -> None:
    call = infer.stub.InferSequences(request("long", lengths=(64,) * 200))
    await asyncio.sleep(0.05)
    call.cancel()
    encoder = infer.service.require_encoder()
    await asyncio.wait_for(encoder.sessions.wait_until_idle(), 5)
    assert not await encoder.thread.call(lambda engine: engine.has_work)
    assert (await infer.stub.InferSequences(request("next"))).vectors


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (request("a", model="other"), "not_found"),
        (request("a", lengths=()), "invalid_argument"),
        (request("a", lengths=(129,)), "invalid_argument"),
        (request("a", lengths=(0,)), "invalid_argument"),
    ],
)
async def test_what_it_cannot_do_is_refused(infer: Bench, bad: worker_pb2.InferSequencesRequest, code: str) -> None:
    assert (await fault_of(infer.stub.InferSequences(bad))).code == code


async def test_generation_is_refused(infer: Bench) -> None:
    async def submit() -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
        yield worker_pb2.GenerateTokensRequest(
            submit=worker_pb2.SubmitSequence(request_id="a", model="bert", prompt_token_ids=[5])
        )

    answers = [message async for message in infer.stub.GenerateTokens(submit())]
    assert "does not generate" in answers[0].outputs[0].error.message


async def test_a_model_that_generates_refuses_to_infer(bench: Bench) -> None:
    fault = await fault_of(bench.stub.InferSequences(request("a", model="tiny")))
    assert fault.code == "invalid_argument"


async def test_a_step_is_one_sequence_when_it_is_measured(infer: Bench) -> None:
    response = await infer.stub.MeasureStep(worker_pb2.MeasureStepRequest(prefill_tokens=100))
    assert response.step_s > 0
    decodes = worker_pb2.MeasureStepRequest(prefill_tokens=8, num_decodes=1)
    assert (await fault_of(infer.stub.MeasureStep(decodes))).code == "invalid_argument"


async def test_a_draining_worker_ends_what_runs_and_takes_no_more(infer: Bench) -> None:
    running = asyncio.ensure_future(infer.stub.InferSequences(request("long", lengths=(64,) * 20)))
    await asyncio.sleep(0.02)
    drain = await infer.stub.Drain(worker_pb2.DrainRequest(deadline_s=20))
    assert drain.num_cancelled == 0
    assert len((await running).vectors) == 20
    assert (await fault_of(infer.stub.InferSequences(request("next")))).code == "unavailable"


async def test_its_layers_run_on_the_backend_that_was_asked_for(unloaded: Bench, encoder: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    order = load_order(encoder, backend="onnxruntime")
    assert [message async for message in unloaded.stub.LoadModel(order)][-1].done
    worker = await unloaded.stub.GetWorker(worker_pb2.GetWorkerRequest())
    assert [replica.backend for replica in worker.replicas] == ["onnxruntime"]
    async for load in unloaded.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=10)):
        assert load.backend.startswith("onnxruntime ")
        assert "(eager " in load.backend
        break
    response = await unloaded.stub.InferSequences(request("one", lengths=(3, 40)))
    assert [len(vector) for vector in response.vectors] == [4 * 64] * 2
