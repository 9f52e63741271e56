"""Commands of controllers at a worker."""

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from headway.core.errors import FailedPreconditionError
from headway.rpc.interceptors import EPOCH_METADATA_KEY
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2
from headway.worker.fence import Fence
from tests.worker.conftest import Bench


def context(epoch: str) -> Any:
    return cast("Any", SimpleNamespace(invocation_metadata=lambda: ((EPOCH_METADATA_KEY, epoch),)))


def test_a_worker_obeys_the_newest_controller_that_it_has_heard_of() -> None:
    fence = Fence()
    for epoch in ("1", "1", "3", "", "3", "9" * 5000):
        fence.check(context(epoch))
    with pytest.raises(FailedPreconditionError, match=r"epoch 3 commands this worker; the caller has epoch 2"):
        fence.check(context("2"))
    fence.check(context("10"))
    with pytest.raises(FailedPreconditionError):
        fence.check(context("9"))


async def test_a_worker_that_a_newer_controller_has_only_asked_obeys_no_earlier_one(unloaded: Bench) -> None:
    """The newer one has no need to change what this worker serves; the earlier one wakes up and would."""
    newer, earlier = (((EPOCH_METADATA_KEY, epoch),) for epoch in ("2", "1"))
    await unloaded.stub.GetWorker(worker_pb2.GetWorkerRequest(), metadata=newer)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unloaded.stub.UnloadModel(worker_pb2.UnloadModelRequest(model="tiny"), metadata=earlier)
    assert "the caller has epoch 1" in error_from_rpc(caught.value).message
