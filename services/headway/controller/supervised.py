"""One process under supervision."""

from dataclasses import dataclass

from headway.controller.process import Handle, ProcessRecord, ProcessSpec
from headway.core.errors import FailedPreconditionError

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0
_STEADY_AFTER_S = 10.0
_MAX_EARLY_DEATHS = 3


@dataclass(slots=True)
class Supervised:
    """A wanted process: its present run, if any, and what its earlier runs came to. Times are monotonic seconds.

    Attributes:
        restart_at_s: when to launch it again; None while it runs.
        num_early_deaths: runs in a row that ended before the process was ready.
        has_been_ready: whether the present run was.
        must_end: whether the present run is to end, for no fault of its own.
        leased_at_s: when the present run was last seen to hold its lease.
    """

    spec: ProcessSpec
    handle: Handle | None = None
    launched_at_s: float = 0.0
    restart_at_s: float | None = None
    num_restarts: int = 0
    num_quick_deaths: int = 0
    num_early_deaths: int = 0
    has_been_ready: bool = False
    must_end: bool = False
    leased_at_s: float = 0.0
    last_words: str = ""

    @property
    def record(self) -> ProcessRecord:
        assert self.handle is not None, f"{self.spec.name} has not been launched"
        return ProcessRecord(
            name=self.spec.name,
            kind=self.spec.kind,
            pid=self.handle.pid,
            start=self.handle.start,
            started_at_s=self.handle.started_at_s,
            command=self.spec.command,
            fingerprint=self.spec.fingerprint,
            num_restarts=self.num_restarts,
            has_been_ready=self.has_been_ready,
        )

    @property
    def fault(self) -> FailedPreconditionError | None:
        """Set when the process keeps ending before it is ready: starting it again will not help."""
        if self.num_early_deaths < _MAX_EARLY_DEATHS:
            return None
        return FailedPreconditionError(
            f"{self.spec.name} does not start; it ended {self.num_early_deaths} times.", hint=self.last_words
        )

    def begin(self, handle: Handle, *, now_s: float) -> None:
        """Records a new run of the process."""
        self.handle = handle
        self.launched_at_s = now_s
        self.restart_at_s = None
        self.has_been_ready = False
        self.must_end = False
        self.leased_at_s = now_s

    def note_lease(self, *, now_s: float) -> None:
        """Records that the process renewed its lease, which makes it ready."""
        self.leased_at_s = now_s
        self.has_been_ready = True
        self.num_early_deaths = 0

    def note_fault(self, *, now_s: float) -> None:
        """Records that leases cannot be told now: nobody can say that it has lost its own."""
        self.leased_at_s = now_s

    def without_lease_s(self, *, now_s: float) -> float:
        """Seconds for which it has not held the lease that it had: it is stopped, or stuck."""
        return now_s - self.leased_at_s if self.has_been_ready else 0.0

    def note_death(self, *, now_s: float, last_words: str) -> float:
        """The run ended. Returns the delay before the next: 0.1 s doubling up to 5 s, unless it lived for 10 s."""
        lived_long = now_s - self.launched_at_s >= _STEADY_AFTER_S
        self.num_quick_deaths = 1 if lived_long else self.num_quick_deaths + 1
        self.num_early_deaths = 0 if self.has_been_ready else self.num_early_deaths + 1
        self.num_restarts += 1
        self.last_words = last_words
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** (self.num_quick_deaths - 1))
        self.restart_at_s = now_s + delay_s
        return delay_s

    def note_end(self, *, now_s: float) -> None:
        """The run was ended; the next may begin at once."""
        self.num_restarts += 1
        self.restart_at_s = now_s
