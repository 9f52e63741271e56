"""One action under way: what a group of workers serves ends, what it is to serve is loaded."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from headway.controller.clients.worker import LoadProgress, WorkerClient
from headway.controller.reconcile import Action, Work
from headway.controller.trouble import PASSING, LoadTrouble
from headway.controller.worker import Worker
from headway.core.errors import DeadlineExceededError, HeadwayError, UnavailableError
from headway.core.move import MoveTarget

log = logging.getLogger(__name__)

_DRAIN_S = 60.0
_STALL_S = 60.0  # without a word from any rank: one of them hangs, and the others wait for it
_LAST_WORDS_S = 1.0


class GroupLoad:
    """Performs an action in the background.

    Only a leader that loads anew releases its group's ranks; they hear no one else. So where a group is to fall apart
    its processes are ended: they are started again, and take their new work then. The same goes for ranks that wait for
    one that was lost while it loaded.

    Args:
        workers: all that are involved and present.
        trouble: with loads on this group.
        end_run: ends a worker's process, which is then started again.
        targets: workers at which what runs on those can go on.
    """

    def __init__(
        self,
        action: Action,
        *,
        workers: Mapping[str, Worker],
        client: WorkerClient,
        trouble: LoadTrouble,
        end_run: Callable[[str], None],
        targets: Sequence[MoveTarget] = (),
    ) -> None:
        self.action = action
        self._workers = workers
        self._client = client
        self._trouble = trouble
        self._end_run = end_run
        self._targets = targets
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, *, plan_id: str) -> None:
        log.info("%s", self.action)
        self._task = asyncio.create_task(self._perform(plan_id), name=f"act-{self.action.worker_ids[0]}")

    async def cancel(self) -> None:
        """Stops waiting; a load goes on in the workers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _perform(self, plan_id: str) -> None:
        leaders = [self._workers[work.leader] for work in self.action.before if work.leader in self._workers]
        targets = self._targets
        await asyncio.gather(*(worker.drain(self._client, deadline_s=_DRAIN_S, targets=targets) for worker in leaders))
        for worker in self._workers.values():
            worker.end()
        for worker_id in self.action.ended:
            self._end_run(worker_id)
        if self.action.after is not None and not self.action.ended:
            await self._load(self.action.after, plan_id)

    async def _load(self, work: Work, plan_id: str) -> None:
        ranks = _Ranks(work, workers=self._workers, client=self._client, plan_id=plan_id)
        try:
            epoch = await ranks.load()
        except HeadwayError as error:
            log.warning("%s could not load %s: %s", ", ".join(work.worker_ids), work.model, error)
            worker_id = ranks.failed_worker or work.leader
            self._trouble.note_failure(error, work=work, worker_id=worker_id, now_s=time.monotonic())
            if work.is_shared and error.code in PASSING:
                for worker_id in work.worker_ids:
                    self._end_run(worker_id)
        else:
            for worker_id in work.worker_ids:
                self._workers[worker_id].begin(work, epoch=epoch)
            self._trouble.note_success()


class _Ranks:
    """The loads of one group: the leader's first, the others' once it tells them where it waits.

    Attributes:
        failed_worker: whose fault `load` raised; '' for nobody's.
    """

    def __init__(self, work: Work, *, workers: Mapping[str, Worker], client: WorkerClient, plan_id: str) -> None:
        self.failed_worker = ""
        self._work = work
        self._workers = workers
        self._client = client
        self._plan_id = plan_id
        self._rendezvous = ""
        self._met = asyncio.Event()
        self._num_reports = 0

    async def load(self) -> str:
        """Returns the epoch of the group's run, '' for a lone worker. The first fault cancels all other loads."""
        ranks = {
            asyncio.create_task(self._load_rank(rank), name=f"load-{worker_id}"): worker_id
            for rank, worker_id in enumerate(self._work.worker_ids)
        }
        try:
            await self._wait(ranks)
        finally:
            for task in ranks:
                task.cancel()
            await asyncio.gather(*ranks, return_exceptions=True)
        faults = [(_fault_of(task), worker_id) for task, worker_id in ranks.items()]
        for error, worker_id in sorted(faults, key=lambda fault: _is_passing(fault[0])):
            if error is not None:
                self.failed_worker = worker_id
                raise error
        return self._rendezvous.rpartition("/")[2]

    async def _wait(self, ranks: Mapping[asyncio.Task[None], str]) -> None:
        """Until all are done, or one has failed; the others then get a moment to tell of their faults, for those that
        only follow from another's say less."""
        waiting, num_reports = True, -1
        while waiting:
            if num_reports == self._num_reports and self._work.is_shared:
                raise DeadlineExceededError(f"No rank has told of its load for {_STALL_S:.0f} s.")
            num_reports = self._num_reports
            done, pending = await asyncio.wait(ranks, timeout=_STALL_S, return_when=asyncio.FIRST_EXCEPTION)
            waiting = bool(pending) and all(_fault_of(task) is None for task in done)
        if pending:
            await asyncio.wait(pending, timeout=_LAST_WORDS_S)

    async def _load_rank(self, rank: int) -> None:
        if rank > 0:
            await self._met.wait()
        worker = self._workers[self._work.worker_ids[rank]]
        worker.fraction = 0.0

        def note(progress: LoadProgress) -> None:
            worker.fraction = progress.fraction
            self._num_reports += 1
            if progress.rendezvous:
                self._rendezvous = progress.rendezvous
                self._met.set()
            log.debug("%s: %s, %.0f %%", worker.member.member_id, progress.stage, 100 * progress.fraction)

        await self._client.load(
            worker.member.endpoint,
            self._work,
            plan_id=self._plan_id,
            rank=rank,
            rendezvous=self._rendezvous if rank > 0 else "",
            on_progress=note,
        )


def _fault_of(load: asyncio.Task[None]) -> BaseException | None:
    """Of a load that is over."""
    if load.cancelled():
        return UnavailableError("The load was cut off.", hint="It is tried again.")
    return load.exception()


def _is_passing(error: BaseException | None) -> bool:
    return isinstance(error, HeadwayError) and error.code in PASSING
