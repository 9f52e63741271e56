"""The order in which a group computes: its leader announces the steps of all models, and does its part of each."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, TypeVar

from headway.core.parallel_config import ParallelConfig
from headway.engine.batch import RunnerLostError
from headway.runner.device_lock import FairDeviceLock
from headway.runner.parallel.announcer import Announcer
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import StepKind, StepMessage

R = TypeVar("R")


class Step(Generic[R]):
    """One that has been announced. `result` is there once `is_done`."""

    __slots__ = ("_compute", "is_done", "result")

    def __init__(self, compute: Callable[[], R]) -> None:
        self._compute = compute
        self.is_done = False
        self.result: R

    def run(self) -> None:
        self.result = self._compute()
        self.is_done = True


class Leader:
    """The leader of a group, or of one process that is alone. The threads of its models share it.

    Steps are announced in the order in which they are started, and computed here in the same order, whichever model's
    they are. As many are in flight as there are stages. So while one model's step is in the last stage, which is here,
    another one's is in those before. A thread that waits for its step, or for room to start one, computes what is ahead
    of it.

    Args:
        group: the group that this process leads.
    """

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._num_stages = group.parallel.pp
        self._announcer: Announcer | None = None
        if group.control is not None:
            self._announcer = Announcer(group.control, num_in_flight=self._num_stages, timeout_s=group.timeout_s)
        self._starts, self._computes, self._telling = FairDeviceLock(), FairDeviceLock(), Lock()
        self._in_flight: deque[Step[Any]] = deque()
        self._fault = ""
        self._models: set[int] = set()
        self._watchers: dict[int, Callable[[], None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a step would start at once. Another model's thread may be quicker."""
        return len(self._in_flight) < self._num_stages

    def watch(self, number: int, on_room: Callable[[], None]) -> None:
        """Calls `on_room` for a model, from any thread, whenever a step is done and there is room for another."""
        self._watchers[number] = on_room

    @property
    def has_models(self) -> bool:
        return bool(self._models)

    @property
    def shows_heads_early(self) -> bool:
        """Whether no step will be announced before the one that is being computed is done, so that ranks may wait for
        its head at once."""
        return len(self._models) == 1 or len(self._in_flight) == self._num_stages

    def open(self, number: int = 0, *, parallel: ParallelConfig | None = None) -> RankGroup:
        """Makes room for one more model; returns the group as that sees it.

        Args:
            number: the number that the other ranks know the model by.
            parallel: the group's axes with the model's own layers of stages; None for the group's.
        """
        self._models.add(number)
        return self._group if parallel is None else self._group.seen_by_model(parallel)

    def close(self, number: int) -> None:
        """Has the other ranks drop a model; with the last one they are let go, and the group is left."""
        self._watchers.pop(number, None)
        with self.alone():
            self._models.remove(number)
            if self._models:
                self.tell(StepMessage(StepKind.DROP, model=number))
            elif self._announcer is not None:
                self._announcer.stop()
                self._group.leave()

    def abandon(self, number: int) -> None:
        """Forgets a model that not all ranks have loaded, and of which none has heard yet; it need not be open."""
        self._models.discard(number)

    def start(
        self,
        message: StepMessage,
        *,
        compute: Callable[[], R],
        expect: Callable[[], None],
        since_s: float | None = None,
    ) -> Step[R]:
        """Announces a step, as soon as there is room for it in flight and all that have waited longer have begun.

        Args:
            compute: this rank's part, which any thread may call.
            expect: called right after the announcement, in the order of announcements.
            since_s: see `FairDeviceLock.take`.

        Raises:
            RunnerLostError: other ranks are gone, or something failed here that they have not noticed.
        """
        with self._starts.hold(since_s):
            self._make_room()
            with self._in_step():
                self.tell(message)
                expect()
            step = Step(compute)
            self._in_flight.append(step)
        return step

    def finish(self, step: Step[R]) -> R:
        """Returns or raises the result of the step's `compute`. Before that it computes the steps that were started
        earlier, and wakes the threads that wait for them. It raises the same errors as `start`.
        """
        while not step.is_done:
            with self._computes.hold():
                if not step.is_done:
                    self._compute_oldest()
        return step.result

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nothing is in flight, and nothing starts."""
        with self._starts.hold(), self._computes.hold():
            while self._in_flight:
                self._compute_oldest()
            yield

    def tell(self, message: StepMessage) -> None:
        """Announces to the other ranks, if there are any."""
        if self._announcer is not None:
            with self._telling:
                self._announcer.announce(message)

    def _make_room(self) -> None:
        if len(self._in_flight) < self._num_stages:
            return
        with self._computes.hold():
            while len(self._in_flight) >= self._num_stages:
                self._compute_oldest()

    def _compute_oldest(self) -> None:
        if self._fault:
            raise RunnerLostError(self._fault)
        try:
            with self._in_step():
                self._in_flight[0].run()
        finally:
            self._in_flight.popleft()
            for on_room in tuple(self._watchers.values()):
                on_room()

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """Around what other ranks take part in."""
        try:
            yield
        except Exception as error:
            if self._announcer is None:
                raise
            # The others may wait for this rank in the middle of the network: nothing brings all in step again.
            self._fault = str(error)
            if isinstance(error, RunnerLostError):
                raise
            raise RunnerLostError(f"the leader failed in the middle of a step: {error}") from error
