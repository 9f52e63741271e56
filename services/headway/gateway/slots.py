"""Limits how many requests are answered at once, and the memory that their bodies take."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headway.core.errors import ResourceExhaustedError
from headway.core.fair_share import FairShare
from headway.observe.metrics import GATEWAY_IN_FLIGHT

_RETRY_S = 1.0


class Slots:
    """Bounds the requests being answered at once, HTTP and gRPC together.

    A tenant that has less than its share of the slots may have the rest of it even where others have taken them all.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._num_taken = 0
        self._fair_share = FairShare()

    @contextmanager
    def take(self, tenant: str = "", *, weight: float = 1.0) -> Iterator[None]:
        """Holds a slot for a tenant; ResourceExhaustedError when none is free."""
        fair_share = self._fair_share
        fair_share.enter(tenant, weight=weight)
        try:
            is_beyond = fair_share.num_requests(tenant) > fair_share.share(tenant, self._num_slots)
            if self._num_taken >= self._num_slots and is_beyond:
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
        finally:
            fair_share.leave(tenant)


class BodyMemory:
    """Bounds the bytes of large bodies of requests that are being read or answered, whoever sends them: reading takes
    no slot, since a client may take its time.

    Args:
        small_bytes: bodies up to this size are always taken.
    """

    def __init__(self, max_bytes: int, *, small_bytes: int = 64 * 1024) -> None:
        self._max_bytes = max_bytes
        self._small_bytes = small_bytes
        self._num_bytes = 0

    @contextmanager
    def hold(self) -> Iterator[Callable[[int], None]]:
        """Gives what is to be told the size of a body as it grows; it raises ResourceExhaustedError where there is no
        room."""
        held = 0

        def grow(num_bytes: int) -> None:
            nonlocal held
            if num_bytes <= self._small_bytes:
                return
            if self._num_bytes + num_bytes - held > self._max_bytes:
                raise ResourceExhaustedError(
                    f"The gateway holds {self._max_bytes} bytes of large bodies already, which is its limit.",
                    hint="Try again in a moment, or send less.",
                    retry_after_s=_RETRY_S,
                )
            self._num_bytes += num_bytes - held
            held = num_bytes

        try:
            yield grow
        finally:
            self._num_bytes -= held


class TenantPlaces:
    """Bounds the sequences that tenants have generated at once, each by itself.

    Args:
        max_sequences: by tenant; others have no bound.
    """

    def __init__(self, max_sequences: Mapping[str, int]) -> None:
        self._max_sequences = max_sequences
        self._num_taken: Counter[str] = Counter()

    @contextmanager
    def take(self, tenant: str, num_sequences: int) -> Iterator[None]:
        """Holds places for sequences; ResourceExhaustedError when the tenant has too few left."""
        limit = self._max_sequences.get(tenant)
        if limit is None:
            yield
            return
        if self._num_taken[tenant] + num_sequences > limit:
            raise ResourceExhaustedError(
                f"The tenant '{tenant}' may have {limit} sequences at once.",
                hint="Try again when others have ended, or send fewer.",
                retry_after_s=_RETRY_S,
            )
        self._num_taken[tenant] += num_sequences
        try:
            yield
        finally:
            self._num_taken[tenant] -= num_sequences
