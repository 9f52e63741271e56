"""Section 4.3.4: closed forms beside the simulator."""

import numpy as np
import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement import queueing
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.workload import Workload
from tests.planner.placement.conftest import group, profile

MODELS = [PlacedModel(name=name, profiles=(profile([0.4]), profile([0.2, 0.2]), profile([0.2, 0.3]))) for name in "ab"]


def poisson(rate: float, share: float) -> Workload:
    rng = np.random.default_rng(4)
    count = 2_000_000
    return Workload(
        models=("a", "b"),
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)),
        model=(rng.random(count) >= share).astype(np.int32),
        slo_s=np.full(count, np.inf),
    )


@pytest.mark.parametrize(("rate", "share"), [(3.0, 0.5), (3.0, 0.25), (1.0, 0.5), (4.0, 0.45)])
def test_two_devices_apart_have_the_mean_latency_of_two_queues(rate: float, share: float) -> None:
    apart = Placement(groups=(group(1, 1, "a"), group(1, 1, "b")))
    found = simulate(MODELS, apart, poisson(rate, share), Rules.SERVING).mean_latency_s
    assert found == pytest.approx(queueing.simple_latency_s(rate, 0.4, share=share), rel=0.01)


@pytest.mark.parametrize("rate", [0.5, 3.0, 4.0])
@pytest.mark.parametrize("stages", [[0.2, 0.2], [0.15, 0.2], [0.2, 0.1]])
def test_a_pipeline_has_the_mean_latency_of_one_queue_before_its_slowest_stage(
    rate: float, stages: list[float]
) -> None:
    models = [PlacedModel(name=name, profiles=(profile(stages),)) for name in "ab"]
    together = Placement(groups=(group(2, 1, "a", "b"),))
    found = simulate(models, together, poisson(rate, 0.5), Rules.SERVING).mean_latency_s
    expected = queueing.pipeline_latency_s(rate, total_s=sum(stages), slowest_s=max(stages))
    assert found == pytest.approx(expected, rel=0.01)


def test_without_overhead_the_pipeline_waits_half_as_long() -> None:
    simple, pipeline = queueing.simple_latency_s(3, 0.4), queueing.pipeline_latency_s(3, total_s=0.4, slowest_s=0.2)
    assert (pipeline - 0.4) / (simple - 0.4) == pytest.approx(0.5)


@pytest.mark.parametrize("load", [0.2, 1.0, 1.8])
def test_at_the_largest_overhead_both_are_equal(load: float) -> None:
    alpha, beta = queueing.largest_communication_overhead(load), queueing.largest_uneven_overhead(load)
    simple = queueing.simple_latency_s(load, 1.0)
    assert queueing.pipeline_latency_s(load, total_s=alpha, slowest_s=alpha / 2) == pytest.approx(simple)
    assert queueing.pipeline_latency_s(load, total_s=1.0, slowest_s=beta / 2) == pytest.approx(simple)
    assert 1 < alpha <= beta


def test_a_load_without_a_mean_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="busy 120%"):
        queueing.device_latency_s(3, 0.4)
