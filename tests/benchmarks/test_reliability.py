"""What the figures of reliability are made of."""

from dataclasses import replace

import pytest

from benchmarks.reliability.footprint import Footprint, Sample, Slope
from benchmarks.reliability.overload import load_of
from benchmarks.reliability.secrecy import area_under_curve
from benchmarks.reliability.soak import growths, is_growing
from benchmarks.reliability.steady import Seen, longest_pause_s
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.workload import Request

ANSWERED = Outcome(
    request=Request(0.0, (1, 2), 3), sent_s=1.0, finished_s=5.0, token_times_s=(1.5, 1.75, 4.75), num_tokens=3
)
REFUSED = replace(ANSWERED, finished_s=1.25, token_times_s=(), error="HTTP 429: The queue is full.")
BROKEN = replace(REFUSED, error="the server hung up before the end of its answer")


@pytest.mark.parametrize(
    ("known", "new", "area"),
    [([1.0, 2.0], [3.0, 4.0], 1.0), ([3.0, 4.0], [1.0, 2.0], 0.0), ([1.0, 3.0], [2.0, 2.0], 0.5), ([1.0], [1.0], 0.5)],
    ids=["always sooner", "always later", "by chance", "at once"],
)
def test_the_area_is_how_often_what_is_known_comes_first(known: list[float], new: list[float], area: float) -> None:
    assert area_under_curve(known, new) == area


def test_the_longest_pause_may_be_before_the_first_token() -> None:
    assert longest_pause_s(ANSWERED) == 3.0
    assert longest_pause_s(replace(ANSWERED, sent_s=-3.0)) == 4.5


def test_what_was_refused_has_no_latency() -> None:
    seen = Seen.of([ANSWERED, REFUSED, BROKEN])
    assert (seen.num_requests, seen.num_errors, seen.latency_s.p99) == (3, 2, 3.75)
    assert Seen.of([REFUSED]).pause_s.p99 is None


def test_goodput_counts_what_was_in_time() -> None:
    late = replace(ANSWERED, token_times_s=(2.5, 3.0, 3.5))
    load = load_of([ANSWERED, late, REFUSED, BROKEN], load=3.0, seconds=2.0, ttft_slo_s=1.0)
    assert (load.num_admitted, load.num_met, load.attainment, load.goodput_per_s) == (2, 1, 0.5, 0.2)
    assert load.refusal_s.p99 == 0.25
    assert load.errors == (BROKEN.error,)


def test_a_slope_is_that_of_an_hour_and_its_error_tells_noise() -> None:
    times_s = [100.0, 1900.0, 3700.0, 5500.0]
    assert Slope.of(times_s, [1.0, 2.0, 3.0, 4.0]) == Slope(per_h=pytest.approx(2.0), error_per_h=pytest.approx(0.0))
    noisy = Slope.of(times_s, [1.0, 3.0, 1.0, 3.0])
    assert 0 < noisy.per_h < noisy.error_per_h


def test_only_what_surely_grows_is_told() -> None:
    def sample(number: int, *names: str) -> Sample:
        # The first process leaks a descriptor a minute, the second only begins with more memory.
        sizes = {"leaks": (10**8, 20 + number), "begins": (10**8 - 10**7 * (number < 5), 20), "came": (10**8, number)}
        found = {
            name: Footprint(rss_bytes=sizes[name][0], num_descriptors=sizes[name][1], num_threads=3) for name in names
        }
        return Sample(60.0 * number, found)

    samples = [sample(number, "leaks", "begins", *(["came"] if number > 10 else [])) for number in range(20)]
    found = growths(samples)
    assert found["leaks"].num_descriptors.per_h == pytest.approx(60.0)
    assert {name: is_growing(growth) for name, growth in found.items()} == {"leaks": True, "begins": False}
