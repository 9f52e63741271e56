"""A model's part on a worker that does not lead its group: it computes what the leader announces, and no more."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from headway.core.errors import FailedPreconditionError
from headway.core.load import LoadReport
from headway.core.load_order import LoadOrder
from headway.engine.batch import RunnerLostError
from headway.worker.metrics import CollectiveMetrics
from headway.worker.owner import Owner
from headway.worker.runners import RankRunner

log = logging.getLogger(__name__)

_RELEASE_S = 10.0


class LoadedRank:
    """The counterpart of `LoadedModel` on ranks above 0. It ends when the leader lets it go, or the process does."""

    def __init__(self, order: LoadOrder, *, runner: RankRunner, owner: Owner) -> None:
        self.order = order
        self.runner = runner
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.num_steps = 0  # the leader counts them
        self._is_over = asyncio.Event()
        self._num_calls = 0
        self._active_at_s = time.monotonic()
        self._traffic = CollectiveMetrics(order.model, runner.traffic, loop=self._loop)
        threading.Thread(target=self._run, name="release", daemon=True).start()

    @property
    def weight_bytes(self) -> int:
        return self.runner.weight_bytes

    @property
    def holder(self) -> object:
        """What holds the memory: once it is gone, that is free."""
        return self.runner

    def refusal(self, worker_id: str) -> FailedPreconditionError:
        """Returns the error for requests, blocks and timings, which only the group's leader serves."""
        order = self.order
        return FailedPreconditionError(
            f"Worker {worker_id} is rank {order.rank} of {order.group_id}, whose leader is {order.worker_ids[0]}.",
            hint=f"Ask {order.worker_ids[0]}.",
        )

    def report(self, state: str) -> LoadReport:
        return LoadReport(model=self.order.model, state=state)

    def idle_s(self) -> float:
        """Seconds since the group was last seen to do a step, by what this rank has sent; from call to call."""
        num_calls = sum(count.num_calls for count in self.runner.traffic.totals().values())
        if num_calls != self._num_calls:
            self._num_calls = num_calls
            self._active_at_s = time.monotonic()
        return time.monotonic() - self._active_at_s

    async def stop(self, *, grace_s: float = _RELEASE_S) -> None:
        """Returns when the leader has released this rank; where it does not in time, only the process's end helps."""
        self.runner.end()
        try:
            await asyncio.wait_for(self._is_over.wait(), grace_s)
        except TimeoutError:
            log.warning("%s did not release its group's other ranks", self.order.worker_ids[0])
            self._owner.on_crash()

    def _run(self) -> None:
        try:
            self.runner.follow()
        except RunnerLostError as error:
            log.warning("the group is lost: %s", error)
            self._end(self._owner.on_crash)
        except Exception:
            log.exception("a rank's step failed")
            self._end(self._owner.on_crash)
        else:
            self._end(lambda: self._owner.on_release(self.order.model))

    def _end(self, tell: Callable[[], None]) -> None:
        def end() -> None:
            self._traffic.stop()
            self._is_over.set()
            tell()

        try:
            self._loop.call_soon_threadsafe(end)
        except RuntimeError:  # the loop has closed: the process is ending
            log.debug("nobody hears that the rank has ended")
