"""Requests: what is drawn has the rate and burstiness that was asked for, and faults name file and line."""

import gzip
import hashlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.placement_problem import TraceFile, WorkloadSource
from headway.core.workload_spec import parse_workload_spec
from headway.planner.placement.workloads import csv_table
from headway.planner.placement.workloads.arrivals import Window, gamma_arrivals
from headway.planner.placement.workloads.resampling import fit_windows, resample
from headway.planner.placement.workloads.source import Workloads, make_workloads
from headway.planner.placement.workloads.trace import read_trace

Make = Callable[..., Workloads]


@pytest.fixture
def make(make_problem: Any) -> Make:
    """`make("gamma:rate=1,cv=2")`, with the content of the one file that the text names."""

    def made(spec: str, content: bytes = b"", *, names: tuple[str, ...] = ("a", "b"), **fields: Any) -> Workloads:
        file = parse_workload_spec(spec).file
        files = (TraceFile(name=file, sha256=hashlib.sha256(content).hexdigest()),) if file else ()
        problem = make_problem(WorkloadSource(spec=spec, files=files, **fields), names=names)
        return make_workloads(problem, {file: content})

    return made


def rows(*lines: str, header: str = "time_s,model") -> bytes:
    return "\n".join((header, *lines)).encode()


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_the_burstiness_that_were_asked_for(cv: float) -> None:
    at = gamma_arrivals([Window(duration_s=20_000, rate=5, cv=cv)], np.random.default_rng(1))
    between = np.diff(at)
    assert np.all(between >= 0)
    assert at[-1] < 20_000
    assert len(at) == pytest.approx(100_000, rel=4 * cv / 100_000**0.5)
    assert between.std() / between.mean() == pytest.approx(cv, rel=0.03)


def test_cv_1_is_poisson() -> None:
    """Kolmogorov-Smirnov against the exponential distribution; 1.63 is the bound at 1 %."""
    between = np.sort(np.diff(gamma_arrivals([Window(duration_s=5_000, rate=4, cv=1)], np.random.default_rng(7))))
    steps = np.arange(1, len(between) + 1) / len(between)
    assert np.max(np.abs(steps - (1 - np.exp(-4 * between)))) * len(between) ** 0.5 < 1.63


@pytest.mark.parametrize("cv", [0.5, 4.0])
def test_a_short_window_expects_rate_times_duration_too(cv: float) -> None:
    """A process that began anew at 0 would have (cv^2 - 1) / 2 more."""
    rng = np.random.default_rng(3)
    counts = [len(gamma_arrivals([Window(duration_s=10, rate=2, cv=cv)], rng)) for _ in range(8000)]
    assert np.mean(counts) == pytest.approx(20, abs=5 * np.std(counts) / len(counts) ** 0.5)


def test_windows_follow_each_other_at_their_own_rates() -> None:
    windows = [Window(duration_s=1000, rate=rate, cv=2) for rate in (1, 0, 20, 3)]
    at = gamma_arrivals(windows, np.random.default_rng(5))
    counts, _ = np.histogram(at, bins=[0, 1000, 2000, 3000, 4000])
    assert counts[1] == 0
    assert counts == pytest.approx([1000, 0, 20_000, 3000], rel=0.2)
    assert np.all(np.diff(at) >= 0)


def test_resampling_gives_back_rate_and_cv_of_every_window() -> None:
    rng = np.random.default_rng(11)
    truth = [Window(duration_s=2000, rate=rate, cv=cv) for rate, cv in ((2, 1), (10, 4), (5, 0.5))]
    at = gamma_arrivals(truth, rng)
    content = "time_s,model\n" + "".join(f"{time!r},a\n" for time in at.tolist())
    drawn = resample(
        read_trace(content.encode(), file="t.csv", models=["a"]),
        window_s=2000,
        duration_s=6000,
        rate_scale=2.0,
        rng=rng,
    )
    again = fit_windows(drawn.arrival_s, window_s=2000, duration_s=6000)
    for fitted, window in zip(again, truth, strict=True):
        assert fitted.rate == pytest.approx(2 * window.rate, rel=0.15)
        assert fitted.cv == pytest.approx(window.cv, rel=0.15)


def test_generated_requests_are_seeded_and_the_held_out_ones_others(make: Make) -> None:
    first, again = make("gamma:rate=20,cv=4", duration_s=100.0), make("gamma:rate=20,cv=4", duration_s=100.0)
    assert np.array_equal(first.searched.arrival_s, again.searched.arrival_s)
    assert len(first.searched) != len(first.held_out)
    assert not np.array_equal(
        first.searched.arrival_s, make("gamma:rate=20,cv=4", duration_s=100.0, seed=1).searched.arrival_s
    )
    assert np.unique(first.searched.slo_s).tolist() == [0.5]  # five times what it takes on one device


def test_a_power_law_gives_the_first_model_the_most(make: Make) -> None:
    workload = make("powerlaw:rate=60,alpha=1", duration_s=2000.0, names=("a", "b", "c")).searched
    counts = np.bincount(workload.model)
    assert counts / counts.sum() == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.01)


def test_a_trace_is_searched_in_its_first_half_and_held_out_in_its_second(make: Make) -> None:
    content = rows("0,a,1", "1,b,", "5.5,a,inf", "10,b,2", header="time_s,model,slo_s")
    for sent in (content, gzip.compress(content)):
        made = make("trace.csv", sent)
        assert made.searched.arrival_s.tolist() == [0, 1]
        assert made.searched.model.tolist() == [0, 1]
        assert made.searched.slo_s.tolist() == [1, 0.5]  # the model's own where the request has none
        assert made.held_out.arrival_s.tolist() == pytest.approx([0.5, 5])
        assert made.held_out.slo_s.tolist() == [np.inf, 2]


def test_a_trace_that_holds_far_more_than_its_size_says_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip file of 64 MiB, which a message may have, holds 64 GiB of equal lines."""
    monkeypatch.setattr(csv_table, "_MAX_BYTES", 1024 * 1024)
    content = gzip.compress(rows(*["0,a"] * 1_000_000, header="time_s,model"))
    assert len(content) < 20_000
    with pytest.raises(InvalidArgumentError, match="it holds more than 1 MiB"):
        make("trace.csv", content)


def test_what_a_router_recorded_begins_at_0(make: Make) -> None:
    content = rows("1700000000.5,a,250,met", "1700000001.5,b,,met", header="at_s,model,slo_ms,outcome")
    made = make("replay:router.csv", content, held_out="poisson:rate=1")
    assert made.searched.arrival_s.tolist() == [0, 1]
    assert made.searched.slo_s.tolist() == [0.25, 0.5]


def test_azure_2019_counts_minutes_and_functions_go_to_models_in_turn(make: Make) -> None:
    header = "HashOwner,HashApp,HashFunction,Trigger,1,2"
    content = rows("o,a,f0,http,30,0", "o,a,f1,http,0,20", "o,a,f2,timer,10,", header=header)
    made = make("azure:day.csv", content, held_out="poisson:rate=1").searched
    assert np.bincount(made.model).tolist() == [40, 20]  # f0 and f2 are a's
    assert np.all(made.arrival_s[made.model == 0] < 60)
    assert np.all(made.arrival_s[made.model == 1] >= 60)
    assert np.all(np.diff(made.arrival_s) >= 0)


def test_azure_2021_invocations_begin_a_duration_before_their_end(make: Make) -> None:
    content = rows("x,f,12,2", "x,g,13,2.5", "x,f,15,6", header="app,func,end_timestamp,duration")
    made = make("azure:2021.csv", content, held_out="poisson:rate=1").searched
    assert made.arrival_s.tolist() == pytest.approx([0, 1, 1.5])  # 9, 10 and 10.5
    assert made.model.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (rows("1,a", "0.5,b"), "line 3 has time_s 0.5 after 1"),
        (rows("1,a", "", "2,c"), "line 4 names the model 'c'"),
        (rows("-1,a"), "line 2 has time_s '-1'"),
        (rows("nan,a"), "line 2 has time_s 'nan'"),
        (rows("inf,a"), "line 2 has time_s inf, which is no time"),
        (rows("now,a"), "line 2 has time_s 'now'"),
        (rows("1,a,-2", header="time_s,model,slo_s"), "line 2 has slo_s '-2'"),
        (rows("1"), "line 2 has 1 fields"),
        (rows(), "has no requests"),
        (b"", "line 1 has no column 'time_s'"),
        (b"\x1f\x8bno gzip", "no valid CSV"),
        (b"\xff\xfe\x00", "no valid CSV"),
    ],
)
def test_a_fault_in_a_trace_is_told_with_its_line(make: Make, content: bytes, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make("trace.csv", content)
    assert told in caught.value.message
    assert caught.value.message.startswith("trace.csv")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("gamma:rate=20", "lacks cv"),
        ("gamma:rate=twenty,cv=1", "rate should be a positive number, not 'twenty'"),
        ("gamma:rate=-1,cv=1", "rate should be a positive number"),
        ("gamma:rate=nan,cv=1", "rate should be a positive number"),
        ("gama:rate=1,cv=1", "no workload 'gama'"),
        ("poisson:rate=1,cv=2", "no option 'cv'"),
        ("poisson:20", "no name=value"),
        ("azure:", "names no file"),
        ("trace.csv,window=0", "window should be a positive number"),
        ("gamma:rate=1,cv=1e200", "cv should be from 0.001 to 1000, not 1e200"),
        ("gamma:rate=1,cv=1e-200", "cv should be from 0.001 to 1000"),
        ("trace.csv,cv_scale=1e9", "cv_scale should be from 0.001 to 1000"),
        ("trace.csv,moved=1e308", "moved should be from 0 to 1e+09"),
        ("powerlaw:rate=1,alpha=inf", "alpha should be a positive number"),
    ],
)
def test_a_fault_in_a_specification_names_the_option(spec: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_workload_spec(spec)
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "spec", ["gamma:rate=20,cv=4", "trace.csv", "azure:a,b.csv,window=60,cv_scale=2", "C:/t.csv", "replay:x=1/r.csv"]
)
def test_a_specification_is_written_as_it_was_read(spec: str) -> None:
    assert str(parse_workload_spec(spec)) == spec


def test_another_file_of_that_name_is_noticed(make_problem: Any) -> None:
    source = WorkloadSource(spec="trace.csv", files=(TraceFile(name="trace.csv", sha256="0" * 64),))
    with pytest.raises(FailedPreconditionError, match=r"trace\.csv is not the file"):
        make_workloads(make_problem(source), {"trace.csv": rows("1,a")})


def test_moving_keeps_each_models_requests_and_their_order_in_a_circle(make: Make) -> None:
    """Here a request's objective tells when it was recorded."""
    content = rows(*(f"{at},{'ab'[at % 2]},{at + 1}" for at in range(40)), header="time_s,model,slo_s")
    made = make("t.csv", content, held_out="t.csv,moved=9")
    for number in range(2):
        moved = made.held_out.model == number
        recorded_s = made.held_out.slo_s[moved] - 1
        assert sorted(recorded_s) == list(range(number, 40, 2))
        shift_s = np.mod(made.held_out.arrival_s[moved] - recorded_s, 39)
        assert shift_s == pytest.approx(shift_s[0])
        assert 0 < min(shift_s[0], 39 - shift_s[0]) <= 9


TRACE = rows("0,a", "1,b", "2,a", "3,b")
AZURE = b"HashFunction,1,2\n"


@pytest.mark.parametrize(
    ("spec", "content", "duration_s", "told"),
    [
        ("poisson:rate=1e12", b"", None, "in 600 s, would make about 6e+14 requests; the most are 10,000,000"),
        ("gamma:rate=1e12,cv=4", b"", 60.0, "in 60 s, would make about 6e+13 requests"),
        ("powerlaw:rate=1e308,alpha=1", b"", None, "more than can be counted"),
        ("poisson:rate=1", b"", 1e15, "in 1e+15 s, would make about 1e+15 requests"),
        ("trace.csv,rate_scale=1e12", TRACE, None, "of 2 recorded requests, would make about 2e+12 requests"),
        ("trace.csv,window=1e-9", TRACE, None, "would have about"),
        ("azure:day.csv", AZURE + b"f,9e6,9e6", None, "day.csv would make about 1.8e+07 requests"),
        ("azure:day.csv", AZURE + b"f,1e15,1", None, "line 2 has 1 '1e15', which should be a number from 0 to 1e+07"),
        ("azure:day.csv", AZURE + b"f,inf,1", None, "line 2 has 1 'inf'"),
        ("azure:day.csv", b"func,end_timestamp,duration\nf,inf,1", None, "line 2 has end_timestamp 'inf'"),
        ("poisson:rate=1", b"", np.nan, "duration should be a positive number, not nan"),
        ("poisson:rate=1", b"", np.inf, "duration should be a positive number, not inf"),
        ("poisson:rate=1", b"", -1.0, "duration should be a positive number, not -1"),
    ],
)
def test_more_requests_than_memory_holds_are_refused_before_any_is_made(
    make: Make, spec: str, content: bytes, duration_s: float | None, told: str
) -> None:
    """In a few megabytes: not one request of the many is made."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgumentError) as caught:
            make(spec, content, duration_s=duration_s)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told in caught.value.message
    assert caught.value.hint
    assert most_bytes < 4 << 20


def test_a_burst_without_end_is_cut_off() -> None:
    """A request comes, and a billion are likely to come with it."""
    window = Window(duration_s=1e7, rate=1.0, cv=1e5)
    with pytest.raises(InvalidArgumentError, match=r"A burst of CV 100000 would make about"):
        gamma_arrivals([window], np.random.default_rng(34))


@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0])
def test_an_objective_that_is_none_is_refused(make: Make, scale: float) -> None:
    with pytest.raises(InvalidArgumentError, match="slo_scale should be a positive number"):
        make("poisson:rate=1", slo_scale=scale)
