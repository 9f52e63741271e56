"""Messages of other processes, as services turn them into what they work with."""

from headway.core.hardware.calibration import RankPlace
from headway.core.hardware.cell import Cell
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.core.program import Instruction, Program, Value
from headway.core.program_check import check_program
from headway.router.servicer import _release_from_pb, _request_from_pb
from headway.rpc.convert import from_pb, group_from_pb, load_order_from_pb, load_order_to_pb, to_pb
from headway.rpc.convert.infer import infer_from_pb, inputs_from_pb
from headway.rpc.convert.search import search_work_from_pb
from headway.v1 import (
    common_pb2,
    inference_pb2,
    placement_pb2,
    planner_pb2,
    router_pb2,
    search_pb2,
    worker_pb2,
)
from tests.core.plans import PLACEMENT, SERVING
from tests.engine.conftest import Bench
from tests.fuzz.target import reads_message

_NUM_STEPS = 6

GROUP = worker_pb2.SubmitGroup(
    sequences=[
        worker_pb2.SubmitSequence(
            request_id=f"r-{number}",
            model="tiny",
            prompt_token_ids=range(20, 40) if number == 0 else (),
            sampling=common_pb2.SamplingParams(max_tokens=4, temperature=1.0, top_p=0.9),
            seed=number,
            tenant="gold",
            tenant_weight=2.0,
            slack_s=1.0,
        )
        for number in range(2)
    ]
)
ORDER = LoadOrder(
    model="tiny",
    directory="/models/tiny",
    dtype="float32",
    num_blocks=64,
    block_size=16,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    max_model_len=512,
    enable_prefix_cache=True,
    worker_ids=("worker-0",),
)
PROGRAM = Program(
    inputs=(Value(shape=(4, 4), stride=(4, 1), dtype="float32"),) * 2,
    instructions=(
        Instruction(
            target="aten.mm.default",
            arguments='{"args": [{"value": 0}, {"value": 1}], "kwargs": {}}',
            results=(Value(shape=(4, 4), stride=(4, 1), dtype="float32"),),
        ),
    ),
    names=("a", "b"),
    results=(2,),
)


@reads_message(router_pb2.Route(request_id="r", model="tiny", num_prompt_tokens=5, max_output_tokens=5))
def routes(message: router_pb2.Route) -> None:
    _request_from_pb(message)


@reads_message(router_pb2.Release(outcome="complete", lease_id="l", request_id="r"))
def releases(message: router_pb2.Release) -> None:
    _release_from_pb(message)


@reads_message(GROUP)
def groups(message: worker_pb2.SubmitGroup) -> None:
    """An engine takes a group, and gives it up again; its books are right at each moment."""
    bench = Bench(max_num_seqs=4, vocab_size=400)
    try:
        if message.sequences:  # the servicer passes others over
            bench.engine.submit_group(group_from_pb(message))
    finally:
        bench.engine.check_integrity()
    for _ in range(_NUM_STEPS):
        bench.step()
    for request_id in bench.engine.request_ids():
        bench.engine.cancel(request_id)
    bench.engine.check_integrity()
    assert not bench.engine.request_ids()


@reads_message(worker_pb2.InferSequencesRequest(model="e", sequences=[worker_pb2.InferSequence(token_ids=[1, 2])]))
def inferences(message: worker_pb2.InferSequencesRequest) -> None:
    infer_from_pb(message)


@reads_message(inference_pb2.InferRequest(inputs=[inference_pb2.InferInput(text="a")]))
def inputs(message: inference_pb2.InferRequest) -> None:
    inputs_from_pb(message.inputs)


@reads_message(load_order_to_pb(ORDER))
def load_orders(message: worker_pb2.LoadModelRequest) -> None:
    order = load_order_from_pb(message)
    assert order.num_own_blocks >= 0
    assert order.shard_owners


@reads_message(
    worker_pb2.MeasureHardwareRequest(
        cells=[to_pb(Cell(family="matmul", dtype="float32", extents=(8, 8, 8)), common_pb2.Cell)],
        place=to_pb(RankPlace(rank=0, num_ranks=2), worker_pb2.RankPlace),
    )
)
def calibrations(message: worker_pb2.MeasureHardwareRequest) -> None:
    for cell in message.cells:
        assert from_pb(cell, Cell).key
    from_pb(message.place, RankPlace)


@reads_message(
    worker_pb2.DrainRequest(deadline_s=1.0, targets=[worker_pb2.MoveTarget(worker_id="w", endpoint="127.0.0.1:1")])
)
def drains(message: worker_pb2.DrainRequest) -> None:
    for target in message.targets:
        from_pb(target, MoveTarget)


@reads_message(to_pb(PROGRAM, common_pb2.Program))
def programs(message: common_pb2.Program) -> None:
    program = from_pb(message, Program)
    check_program(program)
    assert program.content_hash
    assert program.peak_bytes >= 0


@reads_message(to_pb(SERVING, planner_pb2.ServingPlan))
def serving_plans(message: planner_pb2.ServingPlan) -> None:
    from_pb(message, ServingPlan)


@reads_message(to_pb(PLACEMENT, placement_pb2.PlacementPlan))
def placement_plans(message: placement_pb2.PlacementPlan) -> None:
    from_pb(message, PlacementPlan)


@reads_message(search_pb2.StartSearchRequest(kind="placement", request_json='{"a": 1}', time_limit_s=5.0))
def searches(message: search_pb2.StartSearchRequest) -> None:
    search_work_from_pb(message)
