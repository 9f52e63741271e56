"""Loads that fail: when to try again, and when to tell people."""

from headway.core.errors import ErrorCode, FailedPreconditionError, HeadwayError
from headway.core.load_order import LoadOrder

PASSING = {ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED}
_MAX_LOST_LOADS = 3
_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 5.0
_FAULT_RETRY_S = 30.0


class LoadTrouble:
    """Counts what went wrong with loads on a group of workers, over their restarts.

    Attributes:
        fault: the error to show users; None while all is well or may pass by itself.
    """

    def __init__(self) -> None:
        self.note_success()

    def allows(self, work: LoadOrder, *, now_s: float) -> bool:
        """Whether `work` may be tried now; one that has not failed always may."""
        return work != self._work or now_s >= self._retry_at_s

    def note_success(self) -> None:
        self.fault: HeadwayError | None = None
        self._work: LoadOrder | None = None
        self._num_lost_loads = 0
        self._retry_at_s = 0.0

    def note_failure(self, error: HeadwayError, *, work: LoadOrder, worker_id: str, now_s: float) -> None:
        """A fault that will not pass is tried again too, but seldom: a person may have mended it."""
        if work != self._work:
            self.note_success()
        self._work = work
        if error.code not in PASSING:
            self.fault = error
        else:
            self._num_lost_loads += 1
            if self._num_lost_loads >= _MAX_LOST_LOADS:
                self.fault = FailedPreconditionError(
                    f"{worker_id} was lost {self._num_lost_loads} times while it loaded {work.model}.",
                    hint=f"It may need more memory than there is; its log says more. Last: {error.message}",
                )
        delay_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** max(0, self._num_lost_loads - 1))
        self._retry_at_s = now_s + (delay_s if error.code in PASSING else _FAULT_RETRY_S)
