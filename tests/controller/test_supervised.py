"""When a process is started again, and when it is given up on."""

from typing import Any

from headway.controller.process import Handle
from headway.controller.supervised import Supervised


def live_and_die(process: Supervised, *, at_s: float, lived_s: float, ready: bool = True) -> float:
    process.begin(Handle(name="router", pid=1, start="boot/1", started_at_s=at_s), now_s=at_s)
    if ready:
        process.note_lease(now_s=at_s)
    return process.note_death(now_s=at_s + lived_s, last_words="farewell")


def test_quick_deaths_are_answered_ever_later(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    delays = [live_and_die(process, at_s=float(at_s), lived_s=1.0) for at_s in range(8)]
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert process.num_restarts == 8


def test_a_long_life_starts_the_backoff_over(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    for at_s in range(5):
        live_and_die(process, at_s=float(at_s), lived_s=1.0)
    assert live_and_die(process, at_s=100.0, lived_s=60.0) == 0.1


def test_three_deaths_before_readiness_are_a_fault_with_the_last_words(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    for at_s in range(2):
        live_and_die(process, at_s=float(at_s), lived_s=0.1, ready=False)
        assert process.fault is None
    live_and_die(process, at_s=3.0, lived_s=0.1, ready=False)
    assert process.fault is not None
    assert "router does not start" in process.fault.message
    assert process.fault.hint == "farewell"


def test_a_process_that_was_ready_is_never_given_up_on(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    for at_s in range(10):
        live_and_die(process, at_s=float(at_s), lived_s=0.1)
    assert process.fault is None


def test_only_who_had_a_lease_can_miss_it(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    process.begin(Handle(name="router", pid=1, start="boot/1", started_at_s=0.0), now_s=0.0)
    assert process.without_lease_s(now_s=100.0) == 0.0
    process.note_lease(now_s=100.0)
    assert process.without_lease_s(now_s=107.0) == 7.0
    process.begin(Handle(name="router", pid=2, start="boot/2", started_at_s=110.0), now_s=110.0)
    assert process.without_lease_s(now_s=200.0) == 0.0


def test_where_leases_cannot_be_told_nobody_is_without_one(make_spec: Any) -> None:
    process = Supervised(make_spec("router"))
    process.note_fault(now_s=100.0)
    assert not process.has_been_ready
    process.note_lease(now_s=100.0)
    process.note_fault(now_s=160.0)
    assert process.without_lease_s(now_s=161.0) == 1.0
