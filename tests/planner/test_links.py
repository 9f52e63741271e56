"""Plans rest on what was measured between their workers, and say so."""

from dataclasses import replace
from typing import Any

import pytest

from headway.core.catalogue import Provenance, built_in_catalogue
from headway.core.hardware.profile import LinkFit, LinkProfile, Machine
from headway.core.links import Links, MeasuredLinks, UsualLinks
from headway.core.parallel_config import ParallelConfig
from headway.core.piecewise import PiecewiseLinear
from headway.core.plan.serving import EngineLimits, ServingPlan
from headway.planner.certify.explanation import explain
from headway.planner.serving.choice import choose_plan
from headway.planner.serving.device_roofline import fabric_of, links_among, links_on

MIB = 1024**2


def fit(collective: str, num_ranks: int, *, latency_s: float = 1e-4, bytes_per_s: float = 1e9) -> LinkFit:
    sizes = (1024.0, float(16 * MIB))
    return LinkFit(
        collective=collective,
        num_ranks=num_ranks,
        latency_s=latency_s,
        bytes_per_s=bytes_per_s,
        relative_error=0.08,
        curve=PiecewiseLinear(sizes=sizes, seconds=tuple(2 * latency_s + size / bytes_per_s for size in sizes)),
    )


def profile_of(worker: Any, *links: LinkFit, created_at_s: float = 1.0, **versions: str) -> LinkProfile:
    """As timed beside `worker`, whose machine tells more versions than it does."""
    software = worker.hardware.software | {"kernel": "6.1"} | versions
    machine = Machine(hardware=replace(worker.hardware, software=software), machine="host")
    return LinkProfile(machine=machine, created_at_s=created_at_s, links=links)


def plan_with(model: Any, workers: list[Any], *profiles: LinkProfile, **limits: int) -> ServingPlan:
    return choose_plan(
        [model],
        workers,
        limits=EngineLimits(**limits),
        profiles={},
        link_profiles=profiles,
        plan_id="plan-1",
        created_at_s=1.0,
    )


def test_a_group_counts_with_what_was_measured_between_workers_like_its_own(make_model: Any, make_worker: Any) -> None:
    workers = [make_worker("worker-0"), make_worker("worker-1")]
    slow = profile_of(workers[0], fit("all_reduce", 2, latency_s=1e-2), fit("all_gather", 2))
    usual, measured = (plan_with(make_model(), workers, *known, tp=2) for known in ((), (slow,)))
    (before,), (after,) = usual.assignments, measured.assignments
    num_sums = 2 * 8 + 1
    usual_s = fabric_of(workers[0].hardware).latency_s
    added_s = after.prediction.latency.base_s - before.prediction.latency.base_s
    gather_s = slow.links[1].latency_s - usual_s
    assert added_s == pytest.approx(num_sums * (1e-2 - usual_s) + gather_s)
    profile_id = slow.machine.profile_id
    assert {link.operation: link.provenance for link in before.links} == dict.fromkeys(
        ("all_reduce", "gather"), Provenance.ESTIMATED
    )
    assert {link.operation: link.profile_id for link in after.links} == dict.fromkeys(
        ("all_reduce", "gather"), profile_id
    )
    text = " ".join(explain(measured))
    assert f"all_reduce among 2 10.0 ms and 953.7 MiB/s (measured, within 8%, hardware profile {profile_id})" in text
    assert "(estimated, within 50%, from the catalogue)" in " ".join(explain(usual))


def test_slow_links_change_the_layout_that_is_chosen(make_model: Any, make_worker: Any) -> None:
    """A model that does not fit one worker."""
    model = make_model(num_layers=12, hidden_size=2048, intermediate_size=8192, max_position=512)
    workers = [make_worker(f"worker-{index}", memory_bytes=3 * 1024**3) for index in range(2)]
    quick = [fit(name, 2, latency_s=1e-7, bytes_per_s=1e13) for name in ("all_reduce", "all_gather", "all_to_all")]
    slow = [fit(name, 2, latency_s=1.0) for name in ("all_reduce", "all_gather", "all_to_all")]
    chosen = [
        plan_with(model, workers, profile_of(workers[0], *links, fit("send", 2))).assignments[0].parallel
        for links in (quick, slow)
    ]
    assert chosen[0].tp == 2
    assert chosen[1].pp == 2


def test_other_versions_and_other_hardware_do_not_count_and_the_newest_does(make_worker: Any) -> None:
    worker = make_worker()
    worker = replace(worker, hardware=replace(worker.hardware, software={"torch": "2.13"}))
    ranks = [worker, worker]
    assert isinstance(links_among(ranks, [profile_of(worker, torch="2.12")]), UsualLinks)
    assert isinstance(links_among(ranks, [profile_of(make_worker(num_threads=7))]), UsualLinks)
    old, new = profile_of(worker, created_at_s=1.0, kernel="6.0"), profile_of(worker, created_at_s=2.0)
    links = links_among(ranks, [new, old])
    assert isinstance(links, MeasuredLinks)
    assert links.profile_id == new.machine.profile_id


@pytest.mark.parametrize(
    ("operation", "num_ranks", "leaving"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("all_to_all", 4, 0.75),
        ("send", 2, 1.0),
    ],
)
def test_rates_are_of_the_bytes_that_leave_a_rank(
    make_worker: Any, operation: str, num_ranks: int, leaving: float
) -> None:
    """Timings are of the bytes of the whole tensor."""
    workers = [make_worker(f"worker-{index}") for index in range(num_ranks)]
    links = links_among(workers, [profile_of(workers[0], fit(operation, num_ranks))])
    figure = links.figure(operation, num_ranks=num_ranks)
    assert figure.provenance is Provenance.MEASURED
    assert figure.bytes_per_s == pytest.approx(leaving * 1e9)
    assert links.seconds(operation, leaving * MIB, num_ranks=num_ranks) == pytest.approx(2e-4 + MIB / 1e9)


def test_numbers_of_ranks_that_were_not_timed_are_estimated_from_those_that_were(make_worker: Any) -> None:
    workers = [make_worker(f"worker-{index}") for index in range(8)]
    links = links_among(workers, [profile_of(workers[0], fit("all_reduce", 2), fit("all_reduce", 4))])
    figure = links.figure("all_reduce", num_ranks=8)
    assert figure.provenance is Provenance.ESTIMATED
    assert figure.profile_id
    assert figure.latency_s == pytest.approx(1e-4 * 3 / 2)
    assert not links.figure("all_to_all", num_ranks=2).profile_id


def test_what_crosses_machines_counts_by_what_was_timed_between_machines(make_worker: Any) -> None:
    workers = [replace(make_worker(f"worker-{index}"), machine=f"host-{index // 2}") for index in range(4)]
    fits = (fit("all_reduce", 2), fit("all_reduce_network", 4, latency_s=1e-3), fit("send", 2))
    links = links_among(workers, [profile_of(workers[0], *fits, fit("send_network", 2, latency_s=2e-3))])
    latencies_s = [latency(links, *what) for what in (("all_reduce", 2), ("all_reduce", 4), ("send", 2))]
    assert latencies_s == pytest.approx([1e-4, 1e-3, 2e-3])


def test_gpus_of_one_machine_count_by_nccl_and_those_of_several_by_the_catalogue(make_worker: Any) -> None:
    workers = [replace(make_worker(f"worker-{index}"), machine=f"host-{index // 2}") for index in range(4)]
    workers = [replace(worker, hardware=replace(worker.hardware, device="cuda", name="H100")) for worker in workers]
    fits = (fit("all_reduce", 2, latency_s=1.0), fit("send", 2, latency_s=1.0))
    profile = profile_of(workers[0], *fits, fit("all_reduce_nccl", 2), fit("send_nccl", 2, latency_s=1e-5))
    near, far = links_among(workers[:2], [profile]), links_among(workers, [profile])
    assert [latency(near, name, 2) for name in ("all_reduce", "send")] == pytest.approx([1e-4, 1e-5])
    assert latency(far, "all_reduce", 2) == pytest.approx(1e-4)
    for name, num_ranks in (("all_reduce", 4), ("send", 2)):
        assert far.figure(name, num_ranks=num_ranks).provenance is Provenance.ESTIMATED
        assert not far.figure(name, num_ranks=num_ranks).profile_id


def latency(links: Links, operation: str, num_ranks: int) -> float:
    return links.figure(operation, num_ranks=num_ranks).latency_s


def test_estimates_of_stages_count_with_what_was_measured_on_such_devices(make_worker: Any) -> None:
    catalogue, worker = built_in_catalogue(), make_worker()
    device = catalogue.device_of(worker.hardware).name
    profile = profile_of(worker, fit("send", 2))
    assert links_on(device, [profile], catalogue).figure("send", num_ranks=2).profile_id == profile.machine.profile_id
    assert isinstance(links_on("H100", [profile], catalogue), UsualLinks)


def test_a_lone_worker_has_no_links(make_model: Any, make_worker: Any) -> None:
    (assignment,) = plan_with(make_model(), [make_worker()]).assignments
    assert assignment.parallel == ParallelConfig()
    assert assignment.links == ()
