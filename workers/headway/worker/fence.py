"""Keeps a worker from obeying a controller after it has heard of a newer one."""

from headway.core.errors import FailedPreconditionError
from headway.rpc.interceptors import EPOCH_METADATA_KEY, Context

_MAX_DIGITS = 19


class Fence:
    """Remembers the highest epoch of the controllers that this worker has heard of."""

    def __init__(self) -> None:
        self._epoch = 0

    def check(self, context: Context) -> None:
        """Lets a command pass, unless it is an earlier controller's. One without an epoch is no controller's.

        Raises:
            FailedPreconditionError: a newer controller has met this worker.
        """
        epoch = _epoch_of(context)
        if epoch is None:
            return
        if epoch < self._epoch:
            raise FailedPreconditionError(
                f"A controller of epoch {self._epoch} commands this worker; the caller has epoch {epoch}.",
                hint="End the earlier controller.",
            )
        self._epoch = epoch

    def hear(self, context: Context) -> None:
        """Takes in who asks: a controller that meets its workers commands all of them from then on."""
        self._epoch = max(self._epoch, _epoch_of(context) or 0)


def _epoch_of(context: Context) -> int | None:
    """None for a caller that is no controller."""
    text = str(dict(context.invocation_metadata() or ()).get(EPOCH_METADATA_KEY, ""))
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
