"""The leases that were given out and have not ended."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from headway.core.fair_share import FairShare
from headway.router.lease import Lease
from headway.router.place import Place


@dataclass(slots=True)
class _Account:
    """The leases of a model on one group, the oldest first."""

    leases: dict[str, Lease] = field(default_factory=dict)
    num_sequences: int = 0
    num_by_tenant: Counter[str] = field(default_factory=Counter)  # of those sequences
    num_bound: int = 0


_EMPTY = _Account()


class LeaseTable:
    """The leases that have not ended, indexed by id, place, gateway and request.

    Args:
        fair_share: hears whose requests have leases.
    """

    def __init__(self, fair_share: FairShare) -> None:
        self._fair_share = fair_share
        self._leases: dict[str, Lease] = {}
        self._accounts: dict[Place, _Account] = {}
        self._gateways: dict[str, dict[str, Lease]] = {}
        self._requests: dict[tuple[str, str], str] = {}
        self._expected: Counter[Place] = Counter()

    @property
    def num_in_flight(self) -> int:
        return len(self._leases)

    @property
    def gateway_ids(self) -> set[str]:
        """Gateways that hold a lease."""
        return set(self._gateways)

    def num_leases(self, place: Place) -> int:
        return len(self._accounts.get(place, _EMPTY).leases)

    def num_sequences(self, place: Place) -> int:
        return self._accounts.get(place, _EMPTY).num_sequences

    def num_places(self, place: Place, *, cap: int, tenant: str) -> int:
        """Returns how many more sequences a tenant may have where all together may have `cap`.

        A tenant that has less than its share may have the rest of it even where others have taken more than theirs:
        so n tenants have 1 + 1/2 + ... + 1/n times the cap at most.
        """
        account = self._accounts.get(place, _EMPTY)
        num_owed = int(self._fair_share.share(tenant, cap)) - account.num_by_tenant[tenant]
        return max(cap - account.num_sequences, num_owed)

    def num_bound(self, place: Place) -> int:
        """Leases whose requests have objectives."""
        return self._accounts.get(place, _EMPTY).num_bound

    def num_without_token(self, place: Place) -> int:
        """Leases whose requests have objectives that were promised there, and no first token yet."""
        leases = self._accounts.get(place, _EMPTY).leases.values()
        return sum(
            [bool(lease.slo) and lease.commitment is not None and not lease.commitment.has_begun for lease in leases]
        )

    def num_expected(self, place: Place) -> int:
        """Sequences leased elsewhere that are to go on at a place."""
        return self._expected[place]

    def open(self, lease: Lease) -> None:
        """Enters a lease. A request holds one at a time: another that it has ends."""
        assert lease.lease_id not in self._leases, "a lease is opened twice"
        self.close_request(lease.gateway_id, lease.request_id)
        self._leases[lease.lease_id] = lease
        self._requests[lease.gateway_id, lease.request_id] = lease.lease_id
        self._gateways.setdefault(lease.gateway_id, {})[lease.lease_id] = lease
        account = self._accounts.setdefault(lease.place, _Account())
        account.leases[lease.lease_id] = lease
        account.num_sequences += lease.num_sequences
        account.num_by_tenant[lease.tenant] += lease.num_sequences
        self._fair_share.enter(lease.tenant, weight=lease.tenant_weight)
        account.num_bound += bool(lease.slo)
        if lease.decode_group_id:
            self._expected[lease.decode_place] += lease.num_sequences

    def find(self, lease_id: str) -> Lease | None:
        """A lease that has not ended; None if it is unknown."""
        return self._leases.get(lease_id)

    def close(self, lease_id: str) -> Lease | None:
        """Ends a lease; None if it is unknown or has ended."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        del self._requests[lease.gateway_id, lease.request_id]
        account, of_gateway = self._accounts[lease.place], self._gateways[lease.gateway_id]
        del account.leases[lease_id], of_gateway[lease_id]
        account.num_sequences -= lease.num_sequences
        account.num_by_tenant[lease.tenant] -= lease.num_sequences
        self._fair_share.leave(lease.tenant)
        account.num_bound -= bool(lease.slo)
        if lease.decode_group_id:
            self._expected[lease.decode_place] -= lease.num_sequences
        if not account.leases:
            del self._accounts[lease.place]
        if not of_gateway:
            del self._gateways[lease.gateway_id]
        return lease

    def close_request(self, gateway_id: str, request_id: str, *, attempt: int = 0) -> Lease | None:
        """Ends the lease that a request holds; None if it holds none, or only one of another attempt than is named."""
        lease = self.find(self._requests.get((gateway_id, request_id), ""))
        return None if lease is None or (attempt and attempt != lease.attempt) else self.close(lease.lease_id)

    def close_gateway(self, gateway_id: str, *, before_s: float) -> list[Lease]:
        """Ends what a gateway leased before a moment, and returns it."""
        return self._close_before(self._gateways.get(gateway_id, {}).values(), before_s)

    def expire(self, *, before_s: float) -> list[Lease]:
        """Ends what anyone leased before a moment, and returns it."""
        return self._close_before(self._leases.values(), before_s)

    def latest(self, place: Place) -> Iterator[Lease]:
        """The leases of a model on a group, the newest first."""
        return reversed(self._accounts.get(place, _EMPTY).leases.values())

    def check_integrity(self) -> None:
        """Asserts that what is in flight equals the sum over places, over gateways and over requests."""
        by_group = {key: lease for account in self._accounts.values() for key, lease in account.leases.items()}
        by_gateway = {key: lease for leases in self._gateways.values() for key, lease in leases.items()}
        assert by_group == self._leases, "the places' leases are not those in flight"
        assert by_gateway == self._leases, "the gateways' leases are not those in flight"
        assert sorted(self._requests.values()) == sorted(self._leases)
        for place, account in self._accounts.items():
            assert account.leases, f"an empty account is kept for {place}"
            assert account.num_sequences == sum(lease.num_sequences for lease in account.leases.values())
            by_tenant: Counter[str] = Counter()
            for lease in account.leases.values():
                by_tenant[lease.tenant] += lease.num_sequences
            assert +account.num_by_tenant == +by_tenant, "the tenants' sequences are not those that are leased"
            assert account.num_bound == sum(bool(lease.slo) for lease in account.leases.values())
        expected: Counter[Place] = Counter()
        for lease in self._leases.values():
            if lease.decode_group_id:
                expected[lease.decode_place] += lease.num_sequences
        assert +self._expected == expected, "the sequences that groups expect are not those that are leased"

    def _close_before(self, oldest_first: Iterable[Lease], before_s: float) -> list[Lease]:
        closing = list(takewhile(lambda lease: lease.leased_at_s < before_s, oldest_first))
        for lease in closing:
            self.close(lease.lease_id)
        return closing
