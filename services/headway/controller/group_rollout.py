"""One action under way: what a group of workers serves ends, what it is to serve is loaded."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from headway.controller.clients.worker import LoadProgress, WorkerControlClient
from headway.controller.reconcile import Action
from headway.controller.trouble import PASSING, LoadTrouble
from headway.controller.worker import Worker
from headway.core.errors import DeadlineExceededError, HeadwayError, NotFoundError, UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget

log = logging.getLogger(__name__)

_DRAIN_S = 60.0
_STALL_S = 60.0  # without a word from any rank: one of them hangs, and the others wait for it
_LAST_WORDS_S = 1.0


class GroupRollout:
    """Performs one action of a rollout on a group of workers, in the background.

    Only a leader releases its group's ranks, model by model; they hear no one else. Where a group is to fall apart its
    processes are ended: they are started again, and take their new work then. The same goes for ranks that wait for one
    that was lost while it loaded.

    Args:
        workers: all workers that are involved and present.
        trouble: counts failed loads on this group.
        end_run: ends a worker's process, which is then started again.
        targets: for each model that is drained, the workers where its running sequences can go on.
    """

    def __init__(
        self,
        action: Action,
        *,
        workers: Mapping[str, Worker],
        client: WorkerControlClient,
        trouble: LoadTrouble,
        end_run: Callable[[str], None],
        targets: Mapping[LoadOrder, Sequence[MoveTarget]],
    ) -> None:
        self.action = action
        self._workers = workers
        self._client = client
        self._trouble = trouble
        self._end_run = end_run
        self._targets = targets
        self._task: asyncio.Task[None] | None = None
        self._is_loading = False

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, *, plan_id: str) -> None:
        log.info("%s", self.action)
        self._task = asyncio.create_task(self._perform(plan_id), name=f"act-{self.action.worker_ids[0]}")

    async def abandon(self, lost: str) -> None:
        """A worker is another process by now: where it was loading, that has failed."""
        was_loading = self.is_running and self._is_loading
        await self.cancel()
        if was_loading and self.action.after is not None:
            error = UnavailableError(f"{lost} was lost while it loaded.", hint="The load is tried again.")
            self._note_failure(error, work=self.action.after, worker_id=lost)

    async def cancel(self) -> None:
        """Stops waiting; a load goes on in the workers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _perform(self, plan_id: str) -> None:
        await asyncio.gather(*(self._drain(work) for work in self.action.before))
        for worker_id in self.action.ended:
            self._end_run(worker_id)
        for work in self.action.before:
            if not self._is_replaced(work):
                await self._unload(work)
        for worker in self._workers.values():
            worker.end(self.action.before)
        if self.action.after is not None and not self.action.ended:
            self._is_loading = True
            await self._load(self.action.after, plan_id)

    async def _drain(self, work: LoadOrder) -> None:
        leader = self._workers.get(work.leader)
        if leader is not None:
            await leader.drain(self._client, deadline_s=_DRAIN_S, targets=self._targets[work], model=work.model)

    def _is_replaced(self, work: LoadOrder) -> bool:
        """Whether the process ends, or loads another version of the model in its place."""
        after = self.action.after
        is_same_place = after is not None and (after.model, after.worker_ids) == (work.model, work.worker_ids)
        return is_same_place or work.leader in self.action.ended

    async def _unload(self, work: LoadOrder) -> None:
        """From the leader on, which releases the others."""
        for worker_id in work.worker_ids:
            worker = self._workers.get(worker_id)
            if worker is None or worker.is_gone:
                continue
            try:
                await self._client.unload(worker.member.endpoint, work.model)
            except NotFoundError:
                continue  # the leader has released it
            except HeadwayError as error:
                log.warning("%s cannot unload %s: %s", worker_id, work.model, error)

    async def _load(self, work: LoadOrder, plan_id: str) -> None:
        ranks = _Ranks(work, workers=self._workers, client=self._client, plan_id=plan_id)
        try:
            epoch = await ranks.load()
        except HeadwayError as error:
            log.warning("%s could not load %s: %s", ", ".join(work.worker_ids), work.model, error)
            self._note_failure(error, work=work, worker_id=ranks.failed_worker or work.leader)
        else:
            for worker_id in work.worker_ids:
                self._workers[worker_id].begin(work, epoch=epoch)
            self._trouble.note_success()

    def _note_failure(self, error: HeadwayError, *, work: LoadOrder, worker_id: str) -> None:
        """Ranks that wait for the lost one are ended."""
        self._trouble.note_failure(error, work=work, worker_id=worker_id, now_s=time.monotonic())
        if work.is_in_group and error.code in PASSING:
            for mate in work.worker_ids:
                self._end_run(mate)


class _Ranks:
    """The loads of one group: the leader's first, the others' once it tells them where it waits.

    Attributes:
        failed_worker: whose fault `load` raised; '' for nobody's.
    """

    def __init__(
        self, work: LoadOrder, *, workers: Mapping[str, Worker], client: WorkerControlClient, plan_id: str
    ) -> None:
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
        """Waits until all ranks are done, or one has failed. The others then get a moment to report their faults: a
        fault that only follows from another one says less.
        """
        waiting, num_reports = True, -1
        while waiting:
            if num_reports == self._num_reports and self._work.is_in_group:
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
        worker.begin_load(self._work.model)

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
    """Returns the error of a load that is over, if it failed."""
    if load.cancelled():
        return UnavailableError("The load was cut off.", hint="It is tried again.")
    return load.exception()


def _is_passing(error: BaseException | None) -> bool:
    return isinstance(error, HeadwayError) and error.code in PASSING
