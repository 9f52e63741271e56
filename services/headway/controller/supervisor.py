"""Keeps processes running: launches them, adopts those that an earlier controller left, restarts what dies."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Protocol

from headway.controller.launchers.launcher import Launcher
from headway.controller.process import Handle, ProcessRecord, ProcessSpec
from headway.controller.status import ProcessStatus
from headway.controller.supervised import Supervised
from headway.core.errors import HeadwayError
from headway.observe.failpoint import failpoint
from headway.observe.metrics import PROCESS_RESTARTS, PROCESSES_READY
from headway.rpc.peers import Peers
from headway.store.membership import Member, Membership

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
_STOP_GRACE_S = 3.0
_END_GRACE_S = 0.5
# With the three seconds of a lease as long as gateways wait for a worker that does not answer.
_HANGS_AFTER_S = 12.0


class Records(Protocol):
    """What a supervisor notes of its processes, by name."""

    async def all(self) -> list[ProcessRecord]: ...

    async def put(self, value: ProcessRecord, name: str, /) -> None: ...

    async def delete(self, name: str, /) -> bool: ...


class Supervisor:
    """Supervises the processes of a stack.

    Attributes:
        has_workers: whether workers of an earlier controller have been adopted.

    Args:
        specs: what should run.
        records: what runs, so that the next controller finds it.
        membership: the lease of a process that died is withdrawn from it at once.
        peers: who is ready.
        may_act: whether this controller may launch and end processes now; what it may not do is tried again.
        hangs_after_s: without its lease a process that lives is ended, too.
    """

    def __init__(
        self,
        specs: Iterable[ProcessSpec],
        *,
        launcher: Launcher,
        records: Records,
        membership: Membership,
        peers: Peers,
        may_act: Callable[[], Awaitable[bool]],
        hangs_after_s: float = _HANGS_AFTER_S,
    ) -> None:
        self.processes = {spec.name: Supervised(spec) for spec in specs}
        self.has_workers = False
        self._launcher = launcher
        self._records = records
        self._membership = membership
        self._peers = peers
        self._may_act = may_act
        self._hangs_after_s = hangs_after_s
        self._stopped = False
        self._looking = asyncio.Lock()
        self._num_ready: dict[str, int] = {}  # by kind

    async def start(self) -> list[str]:
        """Adopts what runs as it should, ends what should not run, launches the rest; returns the adopted names."""
        recorded = {record.name: record for record in await self._records.all()}
        await self._end_unrecorded({(record.pid, record.start) for record in recorded.values()})
        adopted = []
        for name, record in recorded.items():
            process = self.processes.get(name)
            if process is None or process.spec.fingerprint != record.fingerprint:
                await self._end(record)
            elif await self._launcher.is_alive(record.handle):
                process.num_restarts = record.num_restarts
                process.begin(record.handle, now_s=time.monotonic())
                process.has_been_ready = record.has_been_ready
                adopted.append(name)
        missing = [process for process in self.processes.values() if process.handle is None]
        await asyncio.gather(*(self._launch(process) for process in missing))
        self.has_workers = any(self.processes[name].spec.kind == "worker" for name in adopted)
        log.info("launched %d processes, adopted %s", len(missing), adopted or "none")
        return adopted

    async def watch(self, *, on_death: Callable[[str, int], None]) -> None:
        """Restarts what dies or hangs, until `stop`; `on_death` hears of its name and pid."""
        while not self._stopped:
            async with self._looking:
                leases = {(member.member_id, member.pid) for member in self._peers.everyone}
                troubled = [each for each in self.processes.values() if not await self._is_well(each, leases)]
                if troubled and await self._may_act():
                    await asyncio.gather(*(self._check(process, on_death) for process in troubled))
            self._count_ready(leases)
            await asyncio.sleep(_LOOK_EVERY_S)

    def end_run(self, name: str, *, pid: int) -> None:
        """Has this run of a process ended, if it is the present one, and it is launched again at once. That an older
        run is asked for later changes nothing."""
        process = self.processes[name]
        if process.handle is not None and process.handle.pid == pid:
            process.must_end = True

    def member_of(self, name: str) -> Member | None:
        """The lease of the process's present run."""
        process = self.processes[name]
        if process.handle is None:
            return None
        members = self._peers.members(process.spec.kind)
        return next((m for m in members if m.member_id == name and m.pid == process.handle.pid), None)

    def statuses(self, *, is_stopping: bool) -> tuple[ProcessStatus, ...]:
        """Every process as it is."""
        return tuple(self._status(name, is_stopping=is_stopping) for name in self.processes)

    def fault(self) -> HeadwayError | None:
        """The error of the first process that cannot be started, if there is one."""
        return next((fault for process in self.processes.values() if (fault := process.fault) is not None), None)

    async def record_all(self) -> None:
        """Records every run again: Redis has lost the records."""
        await asyncio.gather(*(self._record(each) for each in self.processes.values() if each.handle is not None))

    async def stop(self) -> None:
        """Ends everything, workers first, and forgets it."""
        self._stopped = True
        async with self._looking:  # what is being launched has a handle then
            await self._end_all()

    def _status(self, name: str, *, is_stopping: bool) -> ProcessStatus:
        process, member = self.processes[name], self.member_of(name)
        if member is not None:
            state = "draining" if member.state == "draining" else "ready"
        elif is_stopping:
            state = "stopped"
        else:
            state = "starting" if process.restart_at_s is None else "restarting"
        return ProcessStatus(
            name=name,
            kind=process.spec.kind,
            pid=process.handle.pid if process.handle else 0,
            state=state,
            endpoint=member.endpoint if member else "",
            metrics_endpoint=member.metrics_endpoint if member else "",
            num_restarts=process.num_restarts,
            started_at_s=process.handle.started_at_s if process.handle else 0.0,
            cores=process.spec.cores,
        )

    async def _end_all(self) -> None:
        workers = [process for process in self.processes.values() if process.spec.kind == "worker"]
        others = [process for process in self.processes.values() if process.spec.kind != "worker"]
        for group in (workers, others):
            await asyncio.gather(*(self._end(process.record) for process in group if process.handle is not None))

    async def _is_well(self, process: Supervised, leases: Container[tuple[str, int]]) -> bool:
        """Whether it runs, has its lease and has had it before: nothing needs to be done then."""
        handle = process.handle
        if handle is None or process.restart_at_s is not None or process.must_end or not process.has_been_ready:
            return False
        if (process.spec.name, handle.pid) not in leases or not await self._launcher.is_alive(handle):
            return False
        process.note_lease(now_s=time.monotonic())
        return True

    async def _check(self, process: Supervised, on_death: Callable[[str, int], None]) -> None:
        if process.restart_at_s is not None:
            if time.monotonic() >= process.restart_at_s and not self._stopped:
                await self._launch(process)
            return
        assert process.handle is not None, "start() first"
        if process.must_end and not self._stopped:
            await self._end_run(process, process.handle)
        elif await self._launcher.is_alive(process.handle):
            await self._check_lease(process, process.handle, on_death)
        elif not self._stopped:
            on_death(process.spec.name, process.handle.pid)
            await self._bury(process, process.handle)

    async def _check_lease(self, process: Supervised, handle: Handle, on_death: Callable[[str, int], None]) -> None:
        now_s = time.monotonic()
        if self.member_of(process.spec.name) is not None:
            is_news = not process.has_been_ready
            process.note_lease(now_s=now_s)
            if is_news:
                await self._record(process)
        elif self._peers.fault:
            process.note_fault(now_s=now_s)
        elif process.without_lease_s(now_s=now_s) > self._hangs_after_s and not self._stopped:
            log.warning("%s lives but does not renew its lease", process.spec.name)
            on_death(process.spec.name, handle.pid)
            process.must_end = True

    async def _bury(self, process: Supervised, handle: Handle) -> None:
        name = process.spec.name
        last_words = await self._launcher.last_words(handle)
        member = self.member_of(name)
        delay_s = process.note_death(now_s=time.monotonic(), last_words=last_words)
        PROCESS_RESTARTS.labels(name).inc()
        log.warning("%s died; starting it again in %.1f s. %s", name, delay_s, last_words)
        if member is not None:
            await self._withdraw(member)

    async def _end_run(self, process: Supervised, handle: Handle) -> None:
        name, member = process.spec.name, self.member_of(process.spec.name)
        if member is not None:
            await self._withdraw(member)
        await self._launcher.stop(handle, grace_s=_END_GRACE_S)
        process.note_end(now_s=time.monotonic())
        PROCESS_RESTARTS.labels(name).inc()
        log.warning("%s was ended; it is started again", name)
        if member is not None:
            await self._withdraw(member)  # it may have renewed it once more

    async def _end_unrecorded(self, recorded: Container[tuple[int, str]]) -> None:
        """Ends what a controller had launched when it was killed, and not yet written down."""
        wanted = [run for run in await self._launcher.running() if run.name in self.processes]
        strays = [run for run in wanted if (run.pid, run.start) not in recorded]
        for stray in strays:
            log.warning("%s runs as process %d, which nobody has recorded; it is ended", stray.name, stray.pid)
        await asyncio.gather(*(self._launcher.stop(stray, grace_s=_END_GRACE_S) for stray in strays))

    async def _launch(self, process: Supervised) -> None:
        handle = await self._launcher.launch(process.spec)
        failpoint("controller.launched")
        process.begin(handle, now_s=time.monotonic())
        await self._record(process)

    async def _record(self, process: Supervised) -> None:
        try:
            await self._records.put(process.record, process.spec.name)
        except HeadwayError as error:
            log.warning("%s is not recorded: %s", process.spec.name, error)

    async def _withdraw(self, member: Member) -> None:
        """Withdraws a dead member's lease, so that nobody calls it for the seconds until the lease would lapse."""
        try:
            await self._membership.withdraw(member)
        except HeadwayError as error:
            log.warning("the lease of %s is not withdrawn: %s", member.member_id, error)

    async def _end(self, record: ProcessRecord) -> None:
        await self._launcher.stop(record.handle, grace_s=_STOP_GRACE_S)
        try:
            await self._records.delete(record.name)
        except HeadwayError as error:
            log.warning("the record of %s is not deleted: %s", record.name, error)

    def _count_ready(self, leases: Container[tuple[str, int]]) -> None:
        num_ready = dict.fromkeys((process.spec.kind for process in self.processes.values()), 0)
        for name, process in self.processes.items():
            if process.handle is not None and (name, process.handle.pid) in leases:
                num_ready[process.spec.kind] += 1
        if num_ready != self._num_ready:
            self._num_ready = num_ready
            for kind, count in num_ready.items():
                PROCESSES_READY.labels(kind).set(count)
