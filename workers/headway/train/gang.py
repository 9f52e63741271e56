"""The ranks of a run: processes that are started together, watched, and ended together."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, HeadwayError, InternalError, UnavailableError
from headway.core.fault import Fault
from headway.core.training_run import StepReport
from headway.observe.parentage import end_with_parent
from headway.train.setup import Setup
from headway.train.trainer import Trainer

_GRACE_S = 5.0
_END_S = 1.0
_RENDEZVOUS = "rendezvous"


class Gang:
    """Ranks are forked, as importing torch takes longer than all the rest; the process that forks them has not computed
    anything. One that dies takes the others with it, as they wait for it.

    Args:
        attempt: numbers the gangs of one process, so that each meets at a place of its own.
    """

    def __init__(self, setup: Setup, *, attempt: int) -> None:
        self._setup = setup
        self._store = setup.directory / f"{_RENDEZVOUS}-{os.getpid()}-{attempt}"
        fork = multiprocessing.get_context("fork")
        self._stop = fork.Event()
        self._ranks: list[tuple[BaseProcess, Connection]] = []
        for rank in range(len(setup.execution.ranks)):
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=self._main, args=(rank, theirs), name=f"rank {rank}")
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid or 0 for process, _ in self._ranks)

    def stop(self) -> None:
        """Asks all ranks to end behind the step that they are in."""
        self._stop.set()

    def reports(self) -> Iterator[StepReport]:
        """What rank 0 reports, until all ranks have ended.

        Raises:
            HeadwayError: a rank's own; where one died, UnavailableError says which, and no rank is left.
        """
        open_pipes = {pipe: rank for rank, (_, pipe) in enumerate(self._ranks)}
        try:
            while open_pipes:
                for pipe in wait(list(open_pipes)):
                    assert isinstance(pipe, Connection)
                    try:
                        document = pipe.recv()
                    except EOFError:
                        rank = open_pipes.pop(pipe)
                        self._check_end(rank)
                        continue
                    if "error" in document:
                        raise self._first_fault(open_pipes[pipe], from_document(Fault, document["error"]))
                    yield from_document(StepReport, document)
        finally:
            self.end()

    def end(self) -> None:
        """Kills what is left."""
        for process, _ in self._ranks:
            if process.is_alive():
                process.kill()
        for process, _ in self._ranks:
            process.join()
        with suppress(FileNotFoundError):
            self._store.unlink()

    def _check_end(self, rank: int) -> None:
        process, _ = self._ranks[rank]
        process.join(_GRACE_S)
        if process.exitcode:
            raise self._died(rank)

    def _first_fault(self, rank: int, fault: Fault) -> HeadwayError:
        """The cause: a rank that was killed, rather than what those say that waited for it."""
        error = fault.raised()
        if isinstance(error, UnavailableError):
            # A peer hears of a closed connection before the kernel says how its process has ended.
            wait([process.sentinel for at, (process, _) in enumerate(self._ranks) if at != rank], timeout=_END_S)
            for other, (process, _) in enumerate(self._ranks):
                if other != rank and process.exitcode is not None and process.exitcode < 0:
                    return self._died(other)
        return error

    def _died(self, rank: int) -> UnavailableError:
        code = self._ranks[rank][0].exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return UnavailableError(f"Rank {rank} {how}.", hint="The run can begin again at its last checkpoint.")

    def _main(self, rank: int, pipe: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gang's owner decides
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_with_parent()
        world = len(self._setup.execution.ranks)
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
        torch.use_deterministic_algorithms(self._setup.job.deterministic)

        def tell(document: dict[str, Any]) -> None:
            pipe.send(document)

        try:
            store = dist.FileStore(str(self._store), world)
            trainer = Trainer(self._setup, rank, store=store, should_stop=self._stop.is_set)
            for report in trainer.run():
                if rank == 0:
                    tell(to_document(report))
        except HeadwayError as error:
            tell({"error": to_document(Fault.of(error))})
        except Exception as error:  # noqa: BLE001 - root of the process
            traceback.print_exc()
            tell({"error": to_document(Fault.of(unexpected(rank, error)))})
        finally:
            pipe.close()
        os._exit(0)  # threads of gloo that wait for a peer would be waited for


def unexpected(rank: int, error: Exception) -> HeadwayError:
    """What an error means that no part of a rank has foreseen."""
    if isinstance(error, RuntimeError) and "use_deterministic_algorithms" in str(error):
        return FailedPreconditionError(
            f"Rank {rank}: the model has an operator that may give other bits each time: {str(error).split(',')[0]}.",
            hint="Leave deterministic out, or write the model without it.",
            field="deterministic",
        )
    return InternalError(f"Rank {rank} failed: {type(error).__name__}: {error}", hint="This is a fault of Headway.")


def train(
    setup: Setup, *, started: Callable[[Gang], None], restarted: Callable[[HeadwayError], None]
) -> Iterator[StepReport]:
    """Runs a run to its end, from its last checkpoint where there is one.

    Args:
        started: is given each gang.
        restarted: is told why the ranks begin again.

    Raises:
        HeadwayError: of the last attempt.
    """
    left = setup.job.restarts
    while True:
        gang = Gang(setup, attempt=setup.job.restarts - left)
        started(gang)
        try:
            yield from gang.reports()
        except UnavailableError as error:
            if not left:
                raise
            left -= 1
            restarted(error)
        else:
            return
