"""Measures twelve models of V100 profiles on sixteen emulated V100s, in groups of several shapes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.alpaserve.fidelity.cell import Cell, measure
from benchmarks.alpaserve.fidelity.overhead import answer_overhead, measure_overhead
from benchmarks.alpaserve.fidelity.patterns import patterns
from benchmarks.alpaserve.fidelity.placed import write_placement
from deploy.demo.stack import headway, running_stack
from headway.cli.plan_file import read_placement_plan
from headway.client.stack import Stack
from headway.core.line import QueuePolicy
from headway.core.plan.placement import PlacementPlan
from headway.planner.placement.planning.counterfactual import instead
from headway.planner.placement.workloads.source import make_workloads

RATE = 50.0
"""Requests per second of all models: the tightest objective is missed by a third, the loosest by few."""
SLO_SCALES = (1.5, 3.0, 6.0)
GROUPS = "groups=1*8x1,1*2x2,1*2x1,1*1x2"
"""The search would take groups of one shape here; with these, all kinds of groups are live."""
NUM_DEVICES = 16
DEVICE = "V100-32"
"""Memory for the activations of each of a group's models, beside 13 GiB of weights; no slower than the smaller one."""
_MODELS = """\
models:
  - {name: bert-small, count: 3, profile: bert-1.3b}
  - {name: bert-middle, count: 3, profile: bert-2.6b}
  - {name: bert-large, count: 2, profile: bert-6.7b}
  - {name: moe-small, count: 2, profile: moe-2.4b}
  - {name: moe-middle, profile: moe-5.3b}
  - {name: moe-large, profile: moe-7.1b}
"""
_CLUSTER = f"""\
device: {DEVICE}
num_devices: {NUM_DEVICES}
devices_per_node: 8
memory_per_device: 13 GiB
"""


def measure_emulated(
    profiles: Path, directory: Path, *, duration_s: float, queue_policy: QueuePolicy = QueuePolicy.FCFS
) -> list[Cell]:
    """Measures each scale and pattern for so long on one stack, after the overhead of answers on another; their state
    goes into the directory.

    Raises:
        CalledProcessError: a `headway` command failed, which has said why.
        HeadwayError: a request was neither answered nor refused.
    """
    plan = make_plan(profiles, directory, queue_policy=queue_policy)
    policy = ("--queue-policy", queue_policy)
    with _live(profiles, directory, *policy) as stack:
        overhead_s = asyncio.run(measure_overhead(plan.problem, plan.placement, endpoint=stack.grpc_endpoint))
    with _live(profiles, directory, *policy, *answer_overhead(overhead_s)) as stack:
        return asyncio.run(
            measure(
                plan.problem,
                plan.placement,
                patterns=patterns(RATE, duration_s=duration_s),
                slo_scales=SLO_SCALES,
                duration_s=duration_s,
                endpoint=stack.grpc_endpoint,
                answer_overhead_s=overhead_s,
            )
        )


@contextmanager
def _live(profiles: Path, directory: Path, *options: str) -> Iterator[Stack]:
    """Runs a stack with the plan of `fidelity.json`."""
    first = ("--model", "bert-small-0=profile:bert-1.3b", "--stage-profiles", str(profiles))
    with running_stack(directory, "--emulate", f"{NUM_DEVICES}x{DEVICE}", *first, *options) as stack:
        headway("apply", str(directory / "fidelity.json"), "--yes", state_dir=directory)
        yield stack


def make_plan(profiles: Path, directory: Path, *, queue_policy: QueuePolicy = QueuePolicy.FCFS) -> PlacementPlan:
    """Searches a placement and writes its plan to `fidelity.json`."""
    models, cluster, searched = (directory / name for name in ("models.yaml", "cluster.yaml", "searched.json"))
    models.write_text(_MODELS)
    cluster.write_text(_CLUSTER)
    headway(
        *("plan", "serve", "--models", str(models), "--cluster", str(cluster), "--profiles", str(profiles)),
        *("--workload", f"gamma:rate={RATE:g},cv=3", "--slo-scale", "3", "--duration", "300", "--time-limit", "10"),
        *("--queue-policy", queue_policy, "--out", str(searched)),
        state_dir=directory,
    )
    plan = read_placement_plan(searched)
    workloads = make_workloads(plan.problem, {})
    placement = instead(GROUPS, problem=plan.problem, placement=plan.placement, workload=workloads.searched)
    return write_placement(directory / "fidelity.json", plan.problem, placement, workloads)
