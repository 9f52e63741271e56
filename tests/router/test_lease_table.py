"""The lease table against a plain list of leases, under random use."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.fair_share import FairShare
from headway.core.slo import Slo
from headway.router.lease import Lease
from headway.router.lease_table import LeaseTable

PLACES = [(f"group-{number}", "llama") for number in range(3)]
GROUPS, GATEWAYS, REQUESTS = ("group-0", "group-1", "group-2"), ("gateway-0", "gateway-1"), tuple("abcdef")


def make_lease(
    lease_id: str,
    *,
    request_id: str = "a",
    gateway_id: str = "gateway-0",
    group_id: str = "group-0",
    num_sequences: int = 1,
    leased_at_s: float = 0.0,
) -> Lease:
    return Lease(
        lease_id=lease_id,
        request_id=request_id,
        gateway_id=gateway_id,
        model="llama",
        group_id=group_id,
        worker_id="worker-0",
        endpoint="127.0.0.1:1",
        num_sequences=num_sequences,
        num_prefill_tokens=10,
        num_cached_tokens=0,
        leased_at_s=leased_at_s,
        slo=Slo(),
        reason="",
        ttft_s=None,
        tpot_s=None,
    )


class LeaseTableMachine(RuleBasedStateMachine):
    """Opens, closes and expires leases; the oracle is the list of open ones, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lease_table = LeaseTable(FairShare())
        self.open: list[Lease] = []
        self.ended: list[str] = []
        self.now_s = 0.0
        self.num_opened = 0

    @rule(
        group_id=st.sampled_from(GROUPS),
        gateway_id=st.sampled_from(GATEWAYS),
        request_id=st.sampled_from(REQUESTS),
        num_sequences=st.integers(1, 4),
    )
    def lease(self, group_id: str, gateway_id: str, request_id: str, num_sequences: int) -> None:
        self.num_opened += 1
        lease = make_lease(
            f"lease-{self.num_opened}",
            request_id=request_id,
            gateway_id=gateway_id,
            group_id=group_id,
            num_sequences=num_sequences,
            leased_at_s=self.now_s,
        )
        self.lease_table.open(lease)
        self._end([old for old in self.open if (old.gateway_id, old.request_id) == (gateway_id, request_id)])
        self.open.append(lease)

    @rule(choice=st.randoms(use_true_random=False))
    def release(self, choice: Random) -> None:
        if self.open:
            lease = choice.choice(self.open)
            assert self.lease_table.close(lease.lease_id) is lease
            self._end([lease])

    @rule(choice=st.randoms(use_true_random=False))
    def release_again(self, choice: Random) -> None:
        lease_id = choice.choice([*self.ended, "unknown"])
        assert self.lease_table.close(lease_id) is None

    @rule(step_s=st.integers(1, 3))
    def wait(self, step_s: int) -> None:
        self.now_s += step_s

    @rule(age_s=st.integers(0, 4))
    def expire(self, age_s: int) -> None:
        before_s = self.now_s - age_s
        due = [lease for lease in self.open if lease.leased_at_s < before_s]
        assert self.lease_table.expire(before_s=before_s) == due
        self._end(due)

    @rule(gateway_id=st.sampled_from(GATEWAYS), age_s=st.integers(-1, 4))
    def lose_gateway(self, gateway_id: str, age_s: int) -> None:
        before_s = self.now_s - age_s
        due = [lease for lease in self.open if lease.gateway_id == gateway_id and lease.leased_at_s < before_s]
        assert self.lease_table.close_gateway(gateway_id, before_s=before_s) == due
        self._end(due)

    @invariant()
    def equals_the_oracle(self) -> None:
        self.lease_table.check_integrity()
        assert self.lease_table.num_in_flight == len(self.open) == sum(map(self.lease_table.num_leases, PLACES))
        assert self.lease_table.gateway_ids == {lease.gateway_id for lease in self.open}
        for group_id in GROUPS:
            of_group = [lease for lease in self.open if lease.group_id == group_id]
            assert list(self.lease_table.latest((group_id, "llama"))) == of_group[::-1]
            assert self.lease_table.num_sequences((group_id, "llama")) == sum(lease.num_sequences for lease in of_group)

    def _end(self, leases: list[Lease]) -> None:
        self.open = [lease for lease in self.open if lease not in leases]
        self.ended += [lease.lease_id for lease in leases]


TestLeaseTable = LeaseTableMachine.TestCase
TestLeaseTable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)


def test_a_request_that_is_leased_again_holds_only_the_new_lease() -> None:
    lease_table = LeaseTable(FairShare())
    lease_table.open(make_lease("old", group_id="group-0"))
    lease_table.open(make_lease("new", group_id="group-1"))
    assert lease_table.close("old") is None
    assert (lease_table.num_leases(("group-0", "llama")), lease_table.num_leases(("group-1", "llama"))) == (0, 1)


def test_a_lease_can_be_ended_by_the_name_of_its_request() -> None:
    lease_table, lease = LeaseTable(FairShare()), make_lease("one")
    lease_table.open(lease)
    assert lease_table.close_request("gateway-1", "a") is None
    assert lease_table.close_request("gateway-0", "a") is lease
    assert lease_table.close_request("gateway-0", "a") is None


def test_a_lease_that_is_ended_by_the_name_of_its_request_is_of_the_attempt_that_is_named() -> None:
    lease_table, lease = LeaseTable(FairShare()), replace(make_lease("one"), attempt=2)
    lease_table.open(lease)
    assert lease_table.close_request("gateway-0", "a", attempt=1) is None
    assert lease_table.close_request("gateway-0", "a", attempt=2) is lease


def test_integrity_fails_when_a_group_counts_a_lease_that_has_ended() -> None:
    lease_table = LeaseTable(FairShare())
    lease_table.open(make_lease("one"))
    del lease_table._leases["one"]
    with pytest.raises(AssertionError, match="places' leases"):
        lease_table.check_integrity()
