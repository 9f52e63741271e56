"""A running request moves from one group of workers to another, with its blocks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack
from tests.integration.stream import WAYS, Stream
from tests.integration.test_migration import Movable


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    directory = tmp_path_factory.mktemp("groups")
    checkpoint = make_checkpoint(directory / "tiny", "llama", max_position_embeddings=2048, num_hidden_layers=6)
    layout = ("--workers", "4", "--tp", "2", "--no-profile")
    running = RunningStack(directory / "state", {"tiny": checkpoint}, *layout).start()
    yield running
    running.stop()


def test_a_stream_moves_between_two_groups_with_its_blocks(groups: RunningStack) -> None:
    movable = Movable(groups)
    with ThreadPoolExecutor(4) as pool:
        stream = Stream(groups, pool, **WAYS["sampled"])
        stream.wait()
        (target,) = {"worker-0", "worker-2"} - {movable.worker_of(stream.request_id)}  # which lead
        move = movable.move(stream.request_id, to=target)
        moved = stream.texts.result()
        stayed = Stream(groups, pool, **WAYS["sampled"]).texts.result()
    assert move.recompute_reason == ""
    assert move.num_blocks > 0
    assert moved == stayed
