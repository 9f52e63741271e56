"""Running requests move between two workers of a real stack, and their clients notice nothing but a pause."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import Result
from typer.testing import CliRunner

from headway.cli.app import app
from headway.core.errors import NotFoundError
from headway.v1 import controller_pb2, controller_pb2_grpc, kvcache_pb2, kvcache_pb2_grpc
from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import WAYS, Stream

WORKERS = ("worker-0", "worker-1")
CROWD = [{"prompt": f"stream number {i} runs", "temperature": 0} for i in range(3)]


class Movable:
    """A stack of two workers, and who runs what there."""

    def __init__(self, stack: RunningStack) -> None:
        self.stack = stack
        channel = grpc.insecure_channel(stack.endpoint("kvcache"))
        self._kvcache = kvcache_pb2_grpc.KvCacheServiceStub(channel)

    def worker_of(self, request_id: str) -> str:
        request = kvcache_pb2.DescribeRequestRequest(request_id=request_id)
        (part,) = self._kvcache.DescribeRequest(request, timeout=10, metadata=self.stack.metadata).parts
        return str(part.worker_id)

    def move(self, request_id: str, *, to: str) -> kvcache_pb2.RequestMove:
        request = kvcache_pb2.MoveRequestRequest(request_id=request_id, worker_id=to)
        (move,) = self._kvcache.MoveRequest(request, timeout=30, metadata=self.stack.metadata).moves
        return move

    def move_away(self, request_id: str) -> kvcache_pb2.RequestMove:
        """To the other worker, whichever that is."""
        source = self.worker_of(request_id)
        return self.move(request_id, to=next(worker_id for worker_id in WORKERS if worker_id != source))


def headway(stack: RunningStack, *arguments: str) -> Result:
    """The command, in this process: starting one takes longer than the requests run."""
    return CliRunner().invoke(app, [*arguments, "--state-dir", str(stack.state_dir)])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """One model on two workers; requests can be long enough to be caught in the middle."""
    directory = tmp_path_factory.mktemp("pair")
    checkpoint = make_checkpoint(directory / "tiny", "llama", max_position_embeddings=2048, num_hidden_layers=6)
    running = RunningStack(directory / "state", {"tiny": checkpoint}, "--workers", "2", "--no-profile").start()
    yield running
    running.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


@pytest.fixture(scope="module")
def expected(pair: RunningStack) -> dict[str, list[str]]:
    """What comes where nothing moves."""
    serve_on_both(pair)
    with ThreadPoolExecutor(8) as pool:
        running = {name: Stream(pair, pool, **way).texts for name, way in WAYS.items()}
        return {name: texts.result() for name, texts in running.items()}


def num_serving(stack: RunningStack) -> int:
    return sum(group.get("state") == "ready" for group in stack.status()["fleet"].get("groups", ()))


def serve_on_both(stack: RunningStack) -> None:
    stack.wait_until_ready()
    wait_for(lambda: num_serving(stack) == len(WORKERS), every_s=0.5)


@pytest.fixture
def movable(pair: RunningStack, expected: dict[str, list[str]]) -> Movable:
    serve_on_both(pair)
    return Movable(pair)


@pytest.fixture
def forgetful(pair: RunningStack, expected: dict[str, list[str]]) -> Movable:
    """Workers that are started anew: none has blocks of what was asked before, which need not move then."""
    killed = {pair.kill(name) for name in WORKERS}
    wait_for(lambda: killed.isdisjoint(pair.pid(name) for name in WORKERS), every_s=0.5)
    serve_on_both(pair)
    return Movable(pair)


def test_streams_move_under_load_and_nobody_notices(
    forgetful: Movable, expected: dict[str, list[str]], pool: ThreadPoolExecutor
) -> None:
    movable = forgetful
    crowd = [Stream(movable.stack, pool, **fields) for fields in CROWD]
    streams = {name: Stream(movable.stack, pool, **way) for name, way in WAYS.items()}

    def move_away(stream: Stream) -> kvcache_pb2.RequestMove:
        stream.wait()
        return movable.move_away(stream.request_id)

    moves = {name: pool.submit(move_away, stream) for name, stream in streams.items()}
    for name in streams:
        move = moves[name].result()
        assert move.recompute_reason == ""
        assert move.num_blocks > 0
        assert move.num_sequences == len(expected[name])
    assert {name: stream.texts.result() for name, stream in streams.items()} == expected
    for stream in crowd:
        assert len(stream.texts.result()) == 1
    assert movable.stack.metric("headway:streams_migrated_total") >= len(WAYS)
    assert movable.stack.metric("headway:migration_pause_seconds_count") >= len(WAYS)
    assert movable.stack.metric("headway:kv_transfer_blocks_total") > 0
    assert movable.stack.metric("headway:kv_transfer_bytes_total") > 0
    assert int(movable.stack.status()["fleet"].get("num_in_flight", 0)) == 0


def test_an_operator_moves_a_request_by_its_answers_id(movable: Movable, pool: ThreadPoolExecutor) -> None:
    crowd = [Stream(movable.stack, pool, **fields) for fields in CROWD]
    stream = Stream(movable.stack, pool, prompt="nobody has asked this before", n=8, temperature=0.9, seed=1)
    stream.wait()
    request_id = stream.request_id
    source = movable.worker_of(request_id)
    target = next(worker_id for worker_id in WORKERS if worker_id != source)
    result = headway(movable.stack, "kv", "move", f"cmpl-{request_id}", "--to", target)
    assert result.exit_code == 0, result.exception
    assert re.match(rf"{source} -> {target}: \d sequences, [1-9]\d* blocks \(.* .iB\) brought\n", result.stdout)
    unknown = headway(movable.stack, "kv", "move", "req-0", "--to", "worker-7")
    assert isinstance(unknown.exception, NotFoundError)
    assert unknown.exception.hint == "The workers are worker-0, worker-1."
    for other in (stream, *crowd):
        other.texts.result()


@pytest.mark.parametrize("victim", ["source", "target"])
def test_kill_9_in_the_middle_of_a_move_loses_nothing(
    movable: Movable, expected: dict[str, list[str]], pool: ThreadPoolExecutor, victim: str
) -> None:
    pids = {name: movable.stack.pid(name) for name in WORKERS}
    streams = {name: Stream(movable.stack, pool, **way) for name, way in WAYS.items()}
    for stream in streams.values():
        stream.wait()
    request_id = streams["greedy"].request_id
    source = movable.worker_of(request_id)
    target = next(worker_id for worker_id in WORKERS if worker_id != source)
    moving = pool.submit(movable.move, request_id, to=target)
    os.kill(pids[source if victim == "source" else target], signal.SIGKILL)
    assert {name: stream.texts.result() for name, stream in streams.items()} == expected
    moving.exception()


def test_a_plan_without_a_worker_moves_what_runs_there(
    movable: Movable, expected: dict[str, list[str]], pool: ThreadPoolExecutor
) -> None:
    controller = controller_pb2_grpc.ControllerServiceStub(grpc.insecure_channel(movable.stack.endpoint("controller")))
    plan = controller.GetPlan(controller_pb2.GetPlanRequest(), timeout=10, metadata=movable.stack.metadata).plan
    whole = controller_pb2.ApplyPlanRequest(plan=plan)
    del plan.assignments[1]
    before = movable.stack.metric("headway:streams_migrated_total")
    streams = {name: Stream(movable.stack, pool, **way) for name, way in WAYS.items()}
    for stream in streams.values():
        stream.wait()
    num_leaving = sum(movable.worker_of(stream.request_id) == "worker-1" for stream in streams.values())
    changes = controller.ApplyPlan(
        controller_pb2.ApplyPlanRequest(plan=plan), timeout=10, metadata=movable.stack.metadata
    ).changes
    assert list(changes) == ["worker-1: drain tiny"]
    assert {name: stream.texts.result() for name, stream in streams.items()} == expected
    assert movable.stack.metric("headway:streams_migrated_total") >= before + min(num_leaving, 1)
    wait_for(lambda: _models_of(movable.stack, "worker-1") == [])
    controller.ApplyPlan(whole, timeout=10, metadata=movable.stack.metadata)
    serve_on_both(movable.stack)


def _models_of(stack: RunningStack, worker_id: str) -> list[str]:
    workers = stack.status()["controller"]["workers"]
    return next(list(worker["models"]) for worker in workers if worker["worker_id"] == worker_id)
