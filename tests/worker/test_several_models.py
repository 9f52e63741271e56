"""Several models in one worker process: each answers as alone, and comes and goes by itself."""

import asyncio
import gc
import time
import uuid
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from headway.core.errors import HeadwayError
from headway.rpc.convert.load import loads_from_pb
from headway.rpc.status import error_from_rpc
from headway.v1 import common_pb2, worker_pb2
from tests.checkpoints import make_checkpoint
from tests.encoders import make_encoder
from tests.worker.conftest import Bench, load

PROMPT = [5, 6, 7, 8, 9, 10]


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("opt"), "opt", seed=3)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoders") / "bert", "bert")


@pytest.fixture
async def shared(unloaded: Bench, tiny: Path, opt: Path, bert: Path) -> Bench:
    await load(unloaded, tiny)
    await load(unloaded, opt, model="opt")
    return await load(unloaded, bert, model="bert", num_blocks=0, max_model_len=128, enable_prefix_cache=False)


def submit(request_id: str, model: str, *, max_tokens: int = 60) -> worker_pb2.GenerateTokensRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, top_p=1.0, repetition_penalty=1.0, ignore_eos=True)
    return worker_pb2.GenerateTokensRequest(
        submit=worker_pb2.SubmitSequence(request_id=request_id, model=model, prompt_token_ids=PROMPT, sampling=sampling)
    )


async def generate(bench: Bench, *models: str, max_tokens: int = 60) -> dict[str, list[int]]:
    """What each model answers, all on one stream."""
    tokens: dict[str, list[int]] = {model: [] for model in models}

    async def submissions() -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
        for model in models:
            yield submit(model, model, max_tokens=max_tokens)

    async for message in bench.stub.GenerateTokens(submissions()):
        for output in message.outputs:
            assert not output.HasField("error"), output.error
            tokens[output.request_id] += output.token_ids
    return tokens


async def embed(bench: Bench) -> bytes:
    request = worker_pb2.InferSequencesRequest(
        request_id=f"embed-{uuid.uuid4().hex}", model="bert", sequences=[worker_pb2.InferSequence(token_ids=PROMPT)]
    )
    return (await bench.stub.InferSequences(request)).vectors[0]


async def fault_of(call: grpc.aio.UnaryUnaryCall) -> HeadwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = error_from_rpc(caught.value)
    assert isinstance(error, HeadwayError)
    return error


async def test_models_answer_together_as_they_do_alone(shared: Bench) -> None:
    alone = {model: (await generate(shared, model))[model] for model in ("tiny", "opt")}
    vector = await embed(shared)
    together, *vectors = await asyncio.gather(generate(shared, "tiny", "opt"), *(embed(shared) for _ in range(5)))
    assert together == alone
    assert set(vectors) == {vector}
    assert alone["tiny"] != alone["opt"]


async def test_the_worker_tells_of_each_model(shared: Bench) -> None:
    response = await shared.stub.GetWorker(worker_pb2.GetWorkerRequest())
    assert [(each.model, each.state) for each in response.replicas] == [
        ("tiny", "ready"),
        ("opt", "ready"),
        ("bert", "ready"),
    ]
    assert response.model == "tiny"
    async for message in shared.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=10)):
        assert [report.model for report in loads_from_pb(message)] == ["tiny", "opt", "bert"]
        break
    usages = (await shared.stub.GetBlocks(worker_pb2.GetBlocksRequest())).usages
    assert [usage.model for usage in usages] == ["tiny", "opt", "bert"]
    measured = worker_pb2.MeasureStepRequest(prefill_tokens=16)
    assert (await fault_of(shared.stub.MeasureStep(measured))).field == "model"
    measured.model = "opt"
    assert (await shared.stub.MeasureStep(measured)).step_s > 0


async def test_a_step_is_measured_while_no_model_is_in_use(shared: Bench) -> None:
    await generate(shared, "tiny", max_tokens=2)
    fault = await fault_of(shared.stub.MeasureStep(worker_pb2.MeasureStepRequest(prefill_tokens=16, model="opt")))
    assert fault.code == "failed_precondition"


async def test_block_events_say_whose_they_are(shared: Bench) -> None:
    await generate(shared, "tiny", "opt")
    known = dict[str, set[bytes]]()
    epochs = set[str]()
    async for message in shared.stub.WatchBlocks(worker_pb2.WatchBlocksRequest()):
        assert message.snapshot
        known[message.model] = {event.block_hash for event in message.events}
        epochs.add(message.epoch)
        if len(known) == 3:
            break
    assert len(epochs) == 3
    assert known["tiny"]
    assert known["tiny"] != known["opt"]  # their answers differ
    assert known["bert"] == set()


async def test_one_model_goes_while_another_streams_and_its_memory_with_it(shared: Bench, opt: Path) -> None:
    expected = (await generate(shared, "tiny", max_tokens=400))["tiny"]
    runner = weakref.ref(shared.service.require_generator("opt").engine.runner)
    streaming = asyncio.create_task(generate(shared, "tiny", max_tokens=400))
    decodes = asyncio.Event()
    ending = asyncio.create_task(_outputs(shared, submit("r", "opt", max_tokens=450), decodes=decodes))
    await decodes.wait()
    drained = await shared.stub.Drain(worker_pb2.DrainRequest(model="opt", deadline_s=0.01))
    assert drained.num_cancelled == 1
    assert (await ending)[-1].error.code == "unavailable"
    assert (await _outputs(shared, submit("late", "opt")))[-1].error.code == "unavailable"
    await shared.stub.UnloadModel(worker_pb2.UnloadModelRequest(model="opt"))
    assert (await streaming)["tiny"] == expected
    await _until_freed(runner)
    assert (await _outputs(shared, submit("late", "opt")))[-1].error.code == "not_found"
    fault = await fault_of(shared.stub.UnloadModel(worker_pb2.UnloadModelRequest(model="opt")))
    assert fault.code == "not_found"
    await load(shared, opt, model="opt")
    assert len((await generate(shared, "opt"))["opt"]) == 60
    assert shared.states[-1] == "ready"


async def _until_freed(runner: "weakref.ref[object]") -> None:
    """A thread or a call that is about to end may hold it for a moment longer."""
    deadline_s = time.monotonic() + 60
    while runner() is not None:
        assert time.monotonic() < deadline_s, gc.get_referrers(runner())
        gc.collect()
        await asyncio.sleep(0.01)


async def _outputs(
    bench: Bench, request: worker_pb2.GenerateTokensRequest, *, decodes: asyncio.Event | None = None
) -> list[worker_pb2.SequenceOutput]:
    """All that comes; `decodes` is set when something has come after the prompt's own token."""

    async def submissions() -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
        yield request

    outputs: list[worker_pb2.SequenceOutput] = []
    async for message in bench.stub.GenerateTokens(submissions()):
        if decodes is not None and outputs:
            decodes.set()
        outputs += message.outputs
    return outputs
