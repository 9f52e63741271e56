"""Seconds of captured graphs on hardware whose every rate is known."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from headway.core.catalogue import Provenance, built_in_catalogue
from headway.core.cluster import Hardware
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.cost.costs import graph_time
from headway.core.cost.measured import MeasuredCosts
from headway.core.cost.workload import workload_of
from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.core.graph import Graph, OperatorKind
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COMPUTE
from headway.core.hardware.profile import HardwareProfile, Machine
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find

FLOPS_PER_S = 1e9
PRODUCTS = ("matmul", "matmul_cached", "batched_matmul", "convolution", "attention")


def capture(name: str, *, batch: int = 3, **changes: object) -> Graph:
    """A model of the zoo, with some sizes of its configuration changed."""
    model = find(name)
    model = replace(model, config=replace(model.config, **changes))
    traced = trace(make_network(model).eval(), model.example_inputs(batch=batch), train=False, report=lambda _: None)
    return build_graph(traced, name=name, is_training=False)


def profile_of(seconds: Callable[[Cell], float]) -> HardwareProfile:
    machine = Machine(
        hardware=Hardware(device="cpu", name="a CPU", num_threads=1, memory_bytes=1),
        machine="here",
    )
    cells = [cell for family in COMPUTE for cell in family.cells()]
    timings = tuple(CellTiming(cell=cell, seconds=seconds(cell)) for cell in cells)
    return HardwareProfile(machine=machine, created_at_s=0.0, timings=timings)


def by_flops(cell: Cell) -> float:
    """Products at one rate, without regard to shape; everything else takes next to nothing."""
    match cell.family:
        case "matmul" | "matmul_cached" | "batched_matmul" | "convolution":
            return 2 * math.prod(cell.extents) / FLOPS_PER_S
        case "attention":
            return 4 * math.prod(cell.extents) / FLOPS_PER_S
        case "causal_attention":
            heads, queries, dim = cell.extents
            return 4 * heads * queries**2 * dim / FLOPS_PER_S
        case "grouped_convolution":
            return 18 * math.prod(cell.extents) / FLOPS_PER_S
    return 1e-12


@pytest.mark.parametrize("name", ["gpt3-1b", "bert-base", "llama-7b", "mmt", "alpa-moe-380m"])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_product_is_found_in_its_terms(name: str, batch: int) -> None:
    """On a machine that only counts FLOPs, families and extents must give an operator's own number of them."""
    graph = capture(f"{name}-small", batch=batch)
    tensors = graph.tensors_by_name()
    found = 0
    for operator in graph.operators:
        work = workload_of(operator, tensors)
        if operator.kind in (OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL):
            assert 2 * math.prod(work.extents) == pytest.approx(operator.flops)
            found += 1
        elif work.family == "attention":
            assert 4 * math.prod(work.extents) == pytest.approx(operator.flops)
        elif work.family == "causal_attention":
            heads, queries, dim = work.extents
            assert 4 * heads * queries**2 * dim == pytest.approx(operator.flops)
    assert found > 0


def test_a_large_model_takes_its_flops() -> None:
    graph = capture("alpa-gpt3-350m", batch=1, num_layers=2)
    time = graph_time(graph, MeasuredCosts(profile_of(by_flops)))
    assert time.seconds == pytest.approx(graph.flops / FLOPS_PER_S, rel=1e-6)
    assert time.provenance is Provenance.MEASURED
    assert time.relative_error == pytest.approx(0, abs=1e-9)
    assert len(time.operators) == len(graph.operators)


def test_convolutions_count_theirs() -> None:
    graph = capture("wide-resnet-250m", batch=1, blocks=(1, 1, 1, 1))
    tensors = graph.tensors_by_name()
    for operator in graph.operators:
        if operator.kind is OperatorKind.CONVOLUTION:
            work = workload_of(operator, tensors)
            assert 2 * math.prod(work.extents) == pytest.approx(operator.flops)


def test_weights_come_from_the_cache_as_far_as_it_kept_them_when_they_took_turns() -> None:
    def seconds(kept_bytes: int) -> Callable[[Cell], float]:
        def of(cell: Cell) -> float:
            if cell.family == "weights":
                return 1.0 if cell.extents[0] <= kept_bytes else 2.0
            return by_flops(cell) / (2 if cell.family == "matmul_cached" else 1)

        return of

    graph = capture("bert-base-small")
    warm, cold = (graph_time(graph, MeasuredCosts(profile_of(seconds(kept)))).seconds for kept in (64 << 20, 0))
    assert warm < 0.7 * cold


def test_a_model_takes_what_its_operators_typically_take() -> None:
    profile = profile_of(by_flops)
    rough = replace(profile, timings=tuple(replace(timing, spread=0.25) for timing in profile.timings))
    graph = capture("bert-base-small")
    times = [graph_time(graph, MeasuredCosts(each)).seconds for each in (profile, rough)]
    assert times[1] == pytest.approx(1.25 * times[0])


def test_what_was_not_measured_is_called_estimated() -> None:
    graph = capture("alpa-moe-380m-small")
    time = graph_time(graph, MeasuredCosts(profile_of(by_flops)))
    kinds = {op.kind: t for op, t in zip(graph.operators, time.operators, strict=True)}
    assert kinds[OperatorKind.SORT].provenance is Provenance.ESTIMATED
    assert kinds[OperatorKind.SORT].relative_error >= 0.5
    assert kinds[OperatorKind.MATMUL].provenance is Provenance.MEASURED


def test_an_incomplete_profile_says_what_to_do() -> None:
    profile = profile_of(by_flops)
    lacking = HardwareProfile(machine=profile.machine, created_at_s=0.0, timings=profile.timings[:40])
    with pytest.raises(FailedPreconditionError, match="profile hardware"):
        graph_time(capture("bert-base-small"), MeasuredCosts(lacking))


def test_hardware_that_is_not_here_is_estimated_in_the_order_that_it_has() -> None:
    graph, catalogue = capture("alpa-gpt3-350m", batch=8, num_layers=2), built_in_catalogue()
    times = [graph_time(graph, CatalogueCosts(catalogue.device(name))) for name in ("V100-16", "A100-40", "H100")]
    assert times[0].seconds > times[1].seconds > times[2].seconds > graph.flops / 1e15
    assert {time.provenance for time in times} == {Provenance.ESTIMATED}
    assert all(time.relative_error > 0 for time in times)


@pytest.mark.parametrize(
    ("name", "device"), [("H100", "H100"), ("h100-sxm", "H100"), ("a100-40", "A100-40"), ("Tesla V100-SXM2", "V100")]
)
def test_devices_are_found_by_what_people_call_them(name: str, device: str) -> None:
    assert find_device(built_in_catalogue(), name).name.startswith(device)


@pytest.mark.parametrize("name", ["z9000", "h1000"])
def test_unknown_hardware_names_what_there_is(name: str) -> None:
    with pytest.raises(NotFoundError, match=rf"{name}.*H100"):
        find_device(built_in_catalogue(), name)
