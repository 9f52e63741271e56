"""A histogram that sorts its values in late, beside the library's own."""

import random
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, Histogram

from headway.observe.batched_histogram import BatchedHistogram

BUCKETS = (0.005, 0.01, 0.1)


@pytest.mark.parametrize("num_values", [0, 7, 1024, 5000])
def test_it_tells_what_the_librarys_histogram_tells(num_values: int) -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    plain = Histogram("gap", "Gaps.", ["model"], buckets=BUCKETS, registry=registries[0]).labels("a")
    batched = BatchedHistogram("gap", "Gaps.", ["model"], buckets=BUCKETS, registry=registries[1]).labels("a")
    rng = random.Random(3)
    for _ in range(num_values):
        value = rng.choice([0.005, 0.01, 0.1, rng.uniform(0, 0.2)])  # bounds belong to their bucket
        plain.observe(value)
        batched.observe(value)
    for le in ("0.005", "0.01", "0.1", "+Inf"):
        told = [registry.get_sample_value("gap_bucket", {"model": "a", "le": le}) for registry in registries]
        assert told[0] == told[1]
    sums = [registry.get_sample_value("gap_sum", {"model": "a"}) for registry in registries]
    assert sums[0] == pytest.approx(sums[1])
    assert registries[1].get_sample_value("gap_count", {"model": "a"}) == num_values


def test_no_value_is_lost_between_threads() -> None:
    registry = CollectorRegistry()
    histogram = BatchedHistogram("gap", "Gaps.", buckets=BUCKETS, registry=registry)

    def observe() -> None:
        for _ in range(20_000):
            histogram.observe(0.5)

    threads = [Thread(target=observe) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        registry.get_sample_value("gap_count")
    assert registry.get_sample_value("gap_count") == 60_000
    assert registry.get_sample_value("gap_sum") == 30_000
