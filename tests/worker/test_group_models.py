"""Several models on a group of two worker processes: each answers as on a lone worker, and comes and goes by itself."""

import asyncio
import signal
import struct
import uuid
from pathlib import Path

import pytest

from headway.v1 import worker_pb2
from tests.checkpoints import make_checkpoint
from tests.encoders import make_encoder
from tests.worker.group import (
    Pair,
    WorkerProcess,
    error_of,
    load,
    load_group,
    order,
    outputs_of,
    submit,
    tokens_of,
)

TEXTS = [[5, 6, 7, 8], list(range(10, 70)), [9], [5, 6, 7, 9], list(range(30, 41))]
LAYOUTS = {"tp 2": 1, "pp 2": 2}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("models")
    return {
        "llama": make_checkpoint(directory / "llama", "llama"),
        "opt": make_checkpoint(directory / "opt", "opt", seed=3),
        "bert": make_encoder(directory / "bert", "bert"),
    }


def request_for(models: dict[str, Path], model: str) -> worker_pb2.LoadModelRequest:
    request = order(models[model], model)
    if model == "bert":
        request.num_blocks, request.max_model_len, request.enable_prefix_cache = 0, 128, False
    return request


async def load_all(pair: Pair, models: dict[str, Path], *names: str, pp: int) -> None:
    for name in names:
        answers = await load_group(pair, request_for(models, name), request_for(models, name), pp=pp)
        assert all(isinstance(answer, list) and answer[-1].done for answer in answers), answers


async def unload(pair: Pair, model: str) -> None:
    """As the controller does: the leader, which has the other rank let it go."""
    await pair[0].stub.UnloadModel(worker_pb2.UnloadModelRequest(model=model))
    for _ in range(500):
        told = await pair[1].describe()
        if model not in [replica.model for replica in told.replicas]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{model} was not released")


async def embed(worker: WorkerProcess, text: list[int]) -> list[float]:
    request = worker_pb2.InferSequencesRequest(
        request_id=uuid.uuid4().hex, model="bert", sequences=[worker_pb2.InferSequence(token_ids=text)]
    )
    vector = (await worker.stub.InferSequences(request)).vectors[0]
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


async def answers_of(worker: WorkerProcess, *names: str) -> list[object]:
    """Of all models at once."""
    generated = asyncio.gather(*(tokens_of(worker, model=name) for name in names))
    embedded = asyncio.gather(*(embed(worker, text) for text in TEXTS))
    return list(await asyncio.gather(generated, embedded))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_models_of_a_group_answer_together_as_on_a_lone_worker(
    pair: Pair, models: dict[str, Path], layout: str
) -> None:
    leader, _ = pair
    for name in models:
        await load(leader, request_for(models, name))
    tokens, vectors = await answers_of(leader, "llama", "opt")
    for name in models:
        await leader.stub.UnloadModel(worker_pb2.UnloadModelRequest(model=name))

    await load_all(pair, models, "llama", "opt", "bert", pp=LAYOUTS[layout])
    assert {(await worker.describe()).group_epoch for worker in pair} != {""}
    assert len({(await worker.describe()).group_epoch for worker in pair}) == 1
    together, embedded = await answers_of(leader, "llama", "opt")
    assert together == tokens
    for mine, theirs in zip(embedded, vectors, strict=True):  # type: ignore[call-overload]
        assert mine == pytest.approx(theirs, abs=1e-5)

    streaming = asyncio.create_task(tokens_of(leader, model="llama"))
    await unload(pair, "opt")
    assert await streaming == tokens[0]  # type: ignore[index]
    gone = await outputs_of(leader, submit("gone", model="opt"))
    assert gone[-1].error.code == "not_found"
    await load_all(pair, models, "opt", pp=LAYOUTS[layout])
    assert await tokens_of(leader, model="opt") == tokens[1]  # type: ignore[index]
    for name in ("llama", "bert", "opt"):
        await unload(pair, name)
    assert [(await worker.describe()).state for worker in pair] == ["starting", "starting"]


async def test_a_model_that_cannot_load_leaves_the_others_as_they_are(
    pair: Pair, models: dict[str, Path], tmp_path: Path
) -> None:
    leader, _ = pair
    await load_all(pair, models, "llama", pp=2)
    alone = await tokens_of(leader, model="llama")
    requests = [request_for(models, "opt"), request_for(models, "opt")]
    requests[1].directory = str(tmp_path)
    answers = await load_group(pair, *requests, pp=2)
    assert all("config.json" in error_of(answer).message for answer in answers)
    assert await tokens_of(leader, model="llama") == alone
    await load_all(pair, models, "opt", pp=2)
    assert len(await tokens_of(leader, model="opt")) == len(alone)
    await unload(pair, "opt")
    await unload(pair, "llama")


async def test_a_rank_that_dies_ends_the_streams_of_all_models_as_unavailable(
    pair: Pair, models: dict[str, Path]
) -> None:
    leader, follower = pair
    await load_all(pair, models, "llama", "bert", "opt", pp=2)
    streams = [
        asyncio.create_task(outputs_of(leader, submit(name, max_tokens=480, model=name))) for name in ("llama", "opt")
    ]
    await asyncio.sleep(0.1)
    follower.send_signal(signal.SIGKILL)
    for ended in await asyncio.gather(*streams, return_exceptions=True):
        codes = {error_of(ended).code} if isinstance(ended, Exception) else {each.error.code for each in ended}
        assert codes <= {"", "unavailable"}
    assert await leader.wait() != 0
