"""Keeps a worker from obeying a controller after it has heard of a newer one, be it only by being asked what it has."""

from headway.core.errors import FailedPreconditionError
from headway.rpc.interceptors import EPOCH_METADATA_KEY, Context

_MAX_DIGITS = 19


class Fence:
    """Remembers the highest epoch of the controllers that have called this worker."""

    def __init__(self) -> None:
        self._epoch = 0

    def check(self, context: Context) -> None:
        """Lets a call pass, unless it is an earlier controller's. One without an epoch is no controller's.

        Raises:
            FailedPreconditionError: a newer controller has called this worker.
        """
        text = str(dict(context.invocation_metadata() or ()).get(EPOCH_METADATA_KEY, ""))
        if not text.isdecimal() or len(text) > _MAX_DIGITS:
            return
        epoch = int(text)
        if epoch < self._epoch:
            raise FailedPreconditionError(
                f"A controller of epoch {self._epoch} commands this worker; the caller has epoch {epoch}.",
                hint="End the earlier controller.",
            )
        self._epoch = epoch
