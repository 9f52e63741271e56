"""Commands of controllers at a worker."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.core.errors import FailedPreconditionError
from headway.rpc.interceptors import EPOCH_METADATA_KEY
from headway.worker.fence import Fence


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


def test_a_controller_that_has_met_a_worker_commands_it() -> None:
    fence = Fence()
    fence.check(context("4"))
    for epoch in ("5", "4", "", "none"):
        fence.hear(context(epoch))
    with pytest.raises(FailedPreconditionError, match=r"epoch 5 commands this worker; the caller has epoch 4"):
        fence.check(context("4"))
