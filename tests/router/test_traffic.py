"""The record of arrivals: each once, whatever became of it, kept for a while."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UnavailableError
from headway.core.slo import Slo
from headway.core.traffic import Arrival, write_replay
from headway.planner.placement.workloads.trace import read_replay
from headway.router.lease import LeaseOutcome, Release
from headway.router.request import RoutingRequest
from headway.router.traffic import TrafficRecord
from headway.store.redis import Database
from headway.store.traffic import HOUR_S, Entry, TrafficStore, _decode, _encode
from tests.router.test_lease_table import make_lease

START_S = 1_000_000 * HOUR_S - 2.0  # in the future, or it would expire
DONE = Release(lease_id="lease", outcome=LeaseOutcome.COMPLETE, num_output_tokens=7)


def request(number: int, model: str = "llama", **changes: object) -> RoutingRequest:
    usual = RoutingRequest(
        request_id=f"request-{number}", model=model, gateway_id="gateway", num_prompt_tokens=number, max_output_tokens=9
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def record_of(store: TrafficStore, run: str = "run", *, step_s: float = 1.0) -> TrafficRecord:
    ticks = itertools.count()
    return TrafficRecord(store, run=run, clock=lambda: START_S + step_s * next(ticks))


def arrive(record: TrafficRecord, *requests: RoutingRequest) -> None:
    for each in requests:
        with record.arriving(each):
            pass


def end(record: TrafficRecord, number: int, release: Release = DONE) -> None:
    record.end(replace(make_lease("lease"), gateway_id="gateway", request_id=f"request-{number}"), release)


async def recorded(store: TrafficStore, start_s: float = 0.0, end_s: float = 1e12) -> list[Arrival]:
    return [arrival async for of_hour in store.read(start_s, end_s) for arrival in of_hour]


async def test_what_arrives_is_read_back_by_time_across_hours_and_runs(database: Database) -> None:
    store = TrafficStore(database)
    first, second = record_of(store, "one"), record_of(store, "two")
    arrive(first, *(request(number) for number in range(4)))
    arrive(second, request(10, "bert", slo=Slo(ttft_s=0.5, e2e_s=0.6), max_output_tokens=0))
    end(first, 1)
    await first.flush()
    end(first, 3)
    for record in (first, second, first):
        await record.flush()
    found = await recorded(store)
    assert [each.at_s - START_S for each in found] == pytest.approx([0, 0, 1, 2, 3], abs=1e-5)
    assert [each.num_output_tokens for each in found if each.model == "llama"] == [None, 7, None, 7]
    assert [(each.answer_slo_s, each.num_prompt_tokens) for each in found if each.model == "bert"] == [(0.5, 10)]
    window = await recorded(store, START_S + 0.5, START_S + 2.5)
    assert [each.num_prompt_tokens for each in window] == [1, 2]


async def test_each_request_counts_once_also_one_that_is_refused_or_goes_on_elsewhere(database: Database) -> None:
    store = TrafficStore(database)
    record = record_of(store)
    arrive(record, request(0), request(0, resumed=True), request(0, excluded_worker_ids=frozenset({"worker-0"})))
    end(record, 0, replace(DONE, outcome=LeaseOutcome.MOVED))
    with pytest.raises(UnavailableError), record.arriving(request(1, slo=Slo(ttft_s=1.0, tpot_s=0.1))):
        raise UnavailableError("There is no room.")
    end(record, 1)  # a release of that which was never leased
    end(record, 0)
    await record.flush()
    found = await recorded(store)
    assert [(each.num_prompt_tokens, each.num_output_tokens) for each in found] == [(0, 7), (1, None)]
    assert found[1].answer_slo_s == pytest.approx(1.0 + 8 * 0.1)


async def test_what_cannot_be_written_is_written_later(database: Database) -> None:
    store = TrafficStore(database)
    record = record_of(store)
    add, calls = store.add, []

    async def away(entries: object) -> None:
        calls.append(entries)
        raise UnavailableError("Redis is away.")

    store.add = away  # type: ignore[method-assign]
    arrive(record, request(0))
    end(record, 0)
    with pytest.raises(UnavailableError):
        await record.flush()
    arrive(record, request(1))
    store.add = add  # type: ignore[method-assign]
    await record.flush()
    await record.flush()
    assert len(calls) == 1
    assert [(each.num_prompt_tokens, each.num_output_tokens) for each in await recorded(store)] == [(0, 7), (1, None)]


async def test_old_hours_and_too_many_are_forgotten_whole(database: Database) -> None:
    store = TrafficStore(database, retention_s=3 * HOUR_S, max_requests=25)
    record = record_of(store, step_s=360.0)
    arrive(record, *(request(number) for number in range(60)))
    await record.flush()
    now_s = START_S + 60 * 360.0
    await store.trim(now_s)
    found = await recorded(store)
    assert [each.num_prompt_tokens for each in found] == list(range(41, 60))  # two hours, the last not yet full
    await TrafficStore(database, max_requests=1).trim(now_s)
    assert [each.num_prompt_tokens for each in await recorded(store)] == list(range(51, 60))


arrivals = st.lists(
    st.builds(
        Arrival,
        at_s=st.integers(0, 2 * 10**15).map(lambda at_us: at_us * 1e-6),
        model=st.sampled_from(["a", "b", 'with "quotes", and\ncommas']),
        num_prompt_tokens=st.integers(0, 10**6),
        max_output_tokens=st.integers(0, 10**6),
        slo=st.builds(Slo, ttft_s=st.none() | st.floats(0.001, 100), tpot_s=st.none() | st.floats(0.001, 1)),
    ),
    max_size=20,
)


@given(arrivals=arrivals, output_tokens=st.dictionaries(st.integers(0, 10**9), st.integers(0, 10**6), max_size=5))
def test_an_entry_is_read_as_it_was_written(arrivals: list[Arrival], output_tokens: dict[int, int]) -> None:
    entry = Entry(run="run", first=5, arrivals=tuple(arrivals), output_tokens=output_tokens)
    read = _decode(_encode(entry))
    assert read == replace(entry, arrivals=read.arrivals)
    assert [replace(each, at_s=0.0) for each in read.arrivals] == [replace(each, at_s=0.0) for each in arrivals]
    assert [each.at_s for each in read.arrivals] == pytest.approx([each.at_s for each in arrivals], abs=2e-6)


def test_the_replay_file_is_what_placing_reads() -> None:
    found = [
        Arrival(at_s=START_S + at_s, model=model, num_prompt_tokens=1, max_output_tokens=0, slo=Slo(ttft_s=slo_s))
        for at_s, model, slo_s in ((0.0, "a", 0.5), (0.25, "b", None), (1.5, "a", 0.125))
    ]
    workload = read_replay(write_replay(found).encode(), file="trace.csv", models=["a", "b"])
    assert workload.arrival_s.tolist() == pytest.approx([0.0, 0.25, 1.5], abs=1e-6)
    assert workload.model.tolist() == [0, 1, 0]
    assert workload.slo_s.tolist() == pytest.approx([0.5, float("nan"), 0.125], nan_ok=True)


def test_an_entry_of_a_thousand_takes_a_few_bytes_each() -> None:
    """From one gateway at 100 requests a second, with lengths of prompts that differ."""
    entry = Entry(
        run="run",
        first=0,
        arrivals=tuple(
            Arrival(
                at_s=START_S + 0.01 * number + 1e-6 * (number * 7919 % 9973),
                model=f"model-{number * 31 % 12}",
                num_prompt_tokens=number * 7919 % 997,
                max_output_tokens=256,
                slo=Slo(ttft_s=0.5),
            )
            for number in range(1000)
        ),
        output_tokens={},
    )
    assert len(_encode(entry)) < 12_000
