"""Limits how many requests are answered at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from headway.core.errors import ResourceExhaustedError
from headway.observe.metrics import GATEWAY_IN_FLIGHT

_RETRY_S = 1.0


class Slots:
    """Bounds the requests being answered at once, HTTP and gRPC together."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._num_taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Holds a slot; ResourceExhaustedError when none is free."""
        if self._num_taken >= self._num_slots:
            raise ResourceExhaustedError(
                f"{self._num_slots} requests are being answered already, which is the limit of this gateway.",
                hint="Try again in a moment, or raise --max-concurrency.",
                retry_after_s=_RETRY_S,
            )
        self._num_taken += 1
        GATEWAY_IN_FLIGHT.set(self._num_taken)
        try:
            yield
        finally:
            self._num_taken -= 1
            GATEWAY_IN_FLIGHT.set(self._num_taken)
