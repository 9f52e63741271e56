"""A request whose step never ends, on workers with Headway's own engine: it ends, and nobody else does."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

import grpc
import httpx
import openai

from headway.core.latency import LatencyModel
from headway.core.load_order import LoadOrder
from headway.rpc.convert import load_order_to_pb
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import worker_pb2_grpc
from tests.gateway import stuck_worker as stuck_worker_program
from tests.gateway.scripted_worker import VOCAB_SIZE
from tests.gateway.test_quarantine import NEIGHBOUR, deadly
from tests.gateway.world import MODEL, Gateway, World
from tests.integration.emulation import write_model

STEP = LatencyModel(
    base_s=0.002, per_prefill_token_s=0.0, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
)


@contextmanager
def stuck_worker(world: World, worker_id: str, directory: Path) -> Iterator[tuple[Popen[bytes], str]]:
    """A worker's process with Headway's own engine and the model, and its endpoint; see `stuck_worker.py`."""
    command = [sys.executable, str(Path(stuck_worker_program.__file__)), "--redis-url", world.redis_url]
    command += ["--namespace", f"{world.namespace}-stuck", "--member-id", worker_id, "--emulate", "V100"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (world.directory / f"{worker_id}.log").open("wb") as log:
        process = Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process, asyncio.run(load(world, worker_id, directory))
    finally:
        process.kill()
        process.wait()


async def load(world: World, worker_id: str, directory: Path) -> str:
    """Has the worker load the model as soon as it is there; returns its endpoint."""
    database = Database.connect(world.redis_url, namespace=f"{world.namespace}-stuck")
    membership = Membership(database)
    async with asyncio.timeout(60):
        while not (found := [each for each in await membership.members() if each.member_id == worker_id]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await database.close()
    order = LoadOrder(
        model=MODEL,
        directory=str(directory),
        dtype="float16",
        num_blocks=256,
        block_size=16,
        max_num_seqs=16,
        max_num_batched_tokens=256,
        max_model_len=512,
        enable_prefix_cache=True,
        stage_latencies=(STEP,),
        step_timeout_s=4.0,
    )
    async with grpc.aio.insecure_channel(found[0].endpoint) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        messages = [message async for message in stub.LoadModel(load_order_to_pb(order))]
    assert messages[-1].done
    return found[0].endpoint


def test_a_request_whose_step_never_ends_is_told_and_its_neighbours_go_on(
    gateway: Gateway, client: openai.OpenAI, world: World, tmp_path: Path
) -> None:
    """A worker whose engine hangs lives, and renews its lease: it ends itself, and the request is as one that kills."""
    model = write_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": VOCAB_SIZE}))
    with ExitStack() as stack:
        started = [stack.enter_context(stuck_worker(world, f"worker-{number}", model)) for number in (7, 8, 9)]
        world.router.workers = {f"worker-{7 + index}": endpoint for index, (_, endpoint) in enumerate(started)}
        expected = client.completions.create(**NEIGHBOUR).choices[0].text
        ask = lambda: client.completions.create(**NEIGHBOUR).choices[0].text  # noqa: E731
        with ThreadPoolExecutor(4) as pool:
            neighbours = [pool.submit(ask) for _ in range(4)]
            body = deadly(0) | {"max_tokens": 22}
            refused = httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=60)
        assert [each.result() for each in neighbours] == [expected] * 4
        assert refused.status_code == 400
        assert "two workers died while they computed it" in refused.json()["error"]["message"]
        assert [process.poll() for process, _ in started].count(1) == 2
        logs = [(world.directory / f"worker-{number}.log").read_text() for number in (7, 8, 9)]
        told = [log for log in logs if "a step of tiny has taken over 4 s" in log]
        assert len(told) == 2
        assert all("stuck_worker.py" in log for log in told), "and where it was"
