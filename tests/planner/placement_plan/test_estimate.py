"""Captured models as pipelines on a device of the catalogue."""

from headway.core.catalogue import Provenance, built_in_catalogue
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.iteration import Access, Dim, IterationSpace
from headway.core.links import UsualLinks
from headway.core.node_span import NodeLink, over_nodes
from headway.core.placement import GroupShape
from headway.core.stage_profile import StageProfile
from headway.planner.inter.estimate import estimate_stage_profiles
from headway.planner.inter.operator_cost import operator_costs

WIDTH, ROWS = 4096, 2048


def chain(num_products: int) -> Graph:
    """Products of one size, each of what the one before made."""
    tensors = [TensorSpec(name="x0", shape=(ROWS, WIDTH), dtype="float32", role=TensorRole.INPUT)]
    operators = []
    for number in range(num_products):
        source, made, weight = f"x{number}", f"x{number + 1}", f"w{number}"
        role = TensorRole.OUTPUT if number == num_products - 1 else TensorRole.ACTIVATION
        tensors.append(TensorSpec(name=weight, shape=(WIDTH, WIDTH), dtype="float32", role=TensorRole.PARAMETER))
        tensors.append(TensorSpec(name=made, shape=(ROWS, WIDTH), dtype="float32", role=role))
        space = IterationSpace(
            dims=(Dim("m", ROWS), Dim("n", WIDTH), Dim("k", WIDTH)),
            reads=(Access(tensor=source, dims=("m", "k")), Access(tensor=weight, dims=("n", "k"))),
            writes=(Access(tensor=made, dims=("m", "n")),),
            reduced=("k",),
        )
        operators.append(
            Operator(
                name=f"mm{number}",
                kind=OperatorKind.MATMUL,
                target="aten.mm.default",
                inputs=(source, weight),
                outputs=(made,),
                flops=2 * ROWS * WIDTH * WIDTH,
                bytes_read=4 * (ROWS + WIDTH) * WIDTH,
                bytes_written=4 * ROWS * WIDTH,
                space=space,
            )
        )
    return Graph(name="chain", is_training=False, tensors=tuple(tensors), operators=tuple(operators))


def estimate(graph: Graph, **options: str) -> dict[GroupShape, StageProfile]:
    profiles = estimate_stage_profiles(
        graph,
        model="chain",
        device="V100-16",
        catalogue=built_in_catalogue(),
        max_devices=8,
        created_at_s=0.0,
        **options,
    )
    return {GroupShape(pp=profile.pp, op=profile.op): profile for profile in profiles}


def test_stages_of_equal_operators_are_even_and_share_the_weights() -> None:
    profiles = estimate(chain(8))
    assert {str(shape) for shape in profiles} == {"1x1", "2x1", "4x1", "8x1", "1x2", "2x2", "4x2", "1x4", "2x4", "1x8"}
    weight_bytes = 4 * WIDTH * WIDTH
    for shape, profile in profiles.items():
        assert profile.layers_per_stage == (8 // shape.pp,) * shape.pp
        assert profile.weight_bytes == (8 // shape.pp * weight_bytes // shape.op,) * shape.pp
        assert profile.provenance is Provenance.ESTIMATED
        assert 0 < profile.relative_error < 1
        assert "estimated" in profile.source


def test_stages_hand_over_what_is_live_between_them() -> None:
    """16 MiB activations over NVLink 2, at 100 GB/s and 20 us."""
    profiles = estimate(chain(8))
    alone_s, staged_s = (profiles[GroupShape(pp=pp, op=1)].latency_s for pp in (1, 4))
    assert abs(staged_s - alone_s - 3 * (20e-6 + 4 * ROWS * WIDTH / 100e9)) < 1e-9
    stages = profiles[GroupShape(pp=4, op=1)]
    assert stages.batches[0].activation_bytes == (4 * ROWS * WIDTH,) * 4
    assert stages.batches[0].handover_bytes == (4 * ROWS * WIDTH,) * 3
    link = NodeLink(name="slow line", latency_s=0.001, bytes_per_s=1e9)
    across_s = over_nodes(stages, link, node=2).latency_s
    assert abs(across_s - staged_s - (0.001 + 4 * ROWS * WIDTH / 1e9)) < 1e-9


def test_devices_of_a_stage_compute_less_and_sum_what_every_second_product_makes() -> None:
    profiles = estimate(chain(8))
    alone_s, shared_s = (profiles[GroupShape(pp=1, op=op)].latency_s for op in (1, 2))
    sums_s = 4 * (20e-6 + 4 * ROWS * WIDTH / 100e9)  # half of the products, 2 (n-1)/n of the tensor each
    assert alone_s / 2 < shared_s < alone_s
    assert shared_s > alone_s / 2 + sums_s * 0.99


def test_half_precision_halves_the_weights_and_is_faster() -> None:
    single, half = estimate(chain(4)), estimate(chain(4), dtype="float16")
    shape = GroupShape(pp=1, op=1)
    assert half[shape].weight_bytes[0] * 2 == single[shape].weight_bytes[0]
    assert half[shape].latency_s < single[shape].latency_s / 4


def test_each_devices_part_of_a_product_costs_what_training_plans_say_of_it() -> None:
    """The first product splits its columns, and the second its rows, whose parts are summed."""
    catalogue, graph = built_in_catalogue(), chain(2)
    costs, links = CatalogueCosts(catalogue.devices["V100-16"]), UsualLinks(fabric=catalogue.links["NVLink 2"].fabric)
    tensors = graph.tensors_by_name()
    first, second = operator_costs(graph, costs, links, op=4)
    columns, rows = (
        costs.time(operator, tensors, {loop: 4}) for operator, loop in zip(graph.operators, "nk", strict=True)
    )
    sum_s = links.seconds("all_reduce", 2 * 3 / 4 * 4 * ROWS * WIDTH, num_ranks=4)
    assert (first.seconds, second.seconds) == (columns.seconds, rows.seconds + sum_s)
    assert first.weight_bytes == {"w0": WIDTH * WIDTH}


def test_what_does_not_divide_every_device_does_as_a_whole() -> None:
    catalogue, graph = built_in_catalogue(), chain(2)
    costs, links = CatalogueCosts(catalogue.devices["V100-16"]), UsualLinks(fabric=catalogue.links["NVLink 2"].fabric)
    alone, shared = (operator_costs(graph, costs, links, op=op) for op in (1, 3))
    assert shared == alone


def test_a_dtype_that_a_device_lacks_is_priced_as_another_of_as_many_bytes() -> None:
    lacking, having = estimate(chain(4), dtype="bfloat16"), estimate(chain(4), dtype="float16")
    assert lacking[GroupShape(pp=1, op=2)].latency_s == having[GroupShape(pp=1, op=2)].latency_s
