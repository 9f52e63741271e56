"""Training plans whose operators are priced as a hardware profile measured them."""

import base64
import math

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Hardware
from headway.core.codec import to_document
from headway.core.graph_file import graph_bytes
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COMPUTE
from headway.core.hardware.profile import HardwareProfile, Machine
from headway.core.plan.document import plan_from_document
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.core.training_search import GRAPH, TrainingSearch
from headway.planner.jobs.training import run
from tests.planner.training.steps import BATCH, HIDDEN, NUM_BLOCKS, mlp, nodes_of


def seconds_of(cell: Cell, *, flops_per_s: float) -> float:
    """Products take time by their size; everything else takes next to nothing."""
    return 2 * math.prod(cell.extents) / flops_per_s if "matmul" in cell.family else 1e-12


def planned(flops_per_s: float) -> TrainingPlan:
    machine = Machine(hardware=Hardware(device="cpu", name="a CPU", num_threads=1, memory_bytes=1), machine="here")
    cells = [cell for family in COMPUTE for cell in family.cells()]
    timings = tuple(CellTiming(cell=cell, seconds=seconds_of(cell, flops_per_s=flops_per_s)) for cell in cells)
    search = TrainingSearch(
        model="mlp",
        batch=64 * BATCH,
        cluster=TrainingCluster(groups=(nodes_of(1, 1),)),
        devices=(built_in_catalogue().devices["V100-16"],),
        precision="float32",
        micro_batches=(1,),
        hardware=HardwareProfile(machine=machine, created_at_s=0.0, timings=timings),
        files={GRAPH: base64.b64encode(graph_bytes(mlp())).decode()},
    )
    found = run(to_document(search), report=lambda _: None, should_stop=lambda: False, resume=None)
    return plan_from_document(TrainingPlan, found)


@pytest.mark.parametrize("flops_per_s", [1e9, 4e9])
def test_an_iteration_takes_what_its_products_were_measured_to_take(flops_per_s: float) -> None:
    """Three products of each linear layer, but for the gradient of the input."""
    num_products = 3 * 2 * NUM_BLOCKS - 1
    (stage,) = planned(flops_per_s).stages
    flops = num_products * 2 * 64 * BATCH * 4 * HIDDEN**2
    assert stage.forward_s + stage.backward_s == pytest.approx(flops / flops_per_s, rel=1e-3)
