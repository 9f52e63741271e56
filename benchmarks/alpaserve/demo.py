"""Why models should share devices (AlpaServe, dissertation section 4.3): two models on two GPUs, each on its own and
both on one pipeline of two, under the same bursts.

Run as `python -m benchmarks.alpaserve.demo`. The GPUs are emulated; gateway, router, controller and workers are real.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.alpaserve.case import read_profiles
from benchmarks.alpaserve.fidelity.load import send
from benchmarks.alpaserve.fidelity.placed import write_placement
from benchmarks.figure import panels, save
from deploy.demo.stack import headway, running_stack
from headway.core.errors import HeadwayError
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster, WorkloadSource
from headway.core.units import format_duration
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.simulator import simulate
from headway.planner.placement.workloads.source import Workloads, make_workloads

PROFILES = Path(__file__).with_name("bert_profiles.json")
ARCHITECTURE, MODELS = "bert-6.7b", ("red", "blue")
DEVICE, MEMORY_GIB = "V100-32", 16
"""With so much of its memory, a device has room for one whole model, or for half of each."""
PLACEMENTS = {
    "apart": Placement(groups=tuple(PlacedGroup(shape=GroupShape(pp=1, op=1), models=(name,)) for name in MODELS)),
    "together": Placement(groups=(PlacedGroup(shape=GroupShape(pp=2, op=1), models=MODELS),)),
}
RATE, CV, DURATION_S, SEED = 3.0, 3.0, 22.0, 4
OBJECTIVE_SCALE = 5.0
_NEVER_REFUSED = 1000.0
"""Objectives of so many latencies: all requests are answered, however late, as in the paper's experiment."""
_OUT = Path("build")

Latencies: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The latencies of the same requests on two placements, in seconds, float64 [num_requests] each."""

    simulated: Latencies
    measured: Latencies


def main() -> None:
    started_at_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="headway-demo-") as directory:
            picture = run_demo(Path(directory), duration_s=DURATION_S, out=_OUT)
    except subprocess.CalledProcessError as error:
        sys.exit(f"demo: this failed: {' '.join(error.cmd[1:])}")  # it has said why
    except (HeadwayError, OSError) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"\nThe picture: {picture}. Done in {format_duration(time.monotonic() - started_at_s)}.")
    print("Next: docs/placement.md, `headway plan serve`")


def run_demo(directory: Path, *, duration_s: float, out: Path) -> Path:
    """Measures both placements on one stack, one after the other; returns the picture's path, in the directory
    `out`."""
    problem = make_problem(duration_s=duration_s)
    workloads = make_workloads(problem, {})
    print(
        f"{len(workloads.held_out)} requests in {duration_s:g} s, in bursts, for two models of 6.7 billion parameters "
        f"on two {DEVICE} (emulated).\nNone is refused: each is answered, however late, as in the paper's experiment."
    )
    first = [part for name in MODELS for part in ("--model", f"{name}=profile:{ARCHITECTURE}")]
    device = ("--emulate", f"{len(MODELS)}x{DEVICE}", "--memory", f"{MEMORY_GIB}GiB", "--stage-profiles", str(PROFILES))
    with running_stack(directory, *device, *first) as stack:
        found = {
            name: _compare(name, placement, problem, workloads, directory, endpoint=stack.grpc_endpoint)
            for name, placement in PLACEMENTS.items()
        }
    objective_s = OBJECTIVE_SCALE * problem.latency_s(problem.models[0])
    print(table(found, objective_s=objective_s))
    return draw(found, objective_s=objective_s, directory=out)


def make_problem(*, duration_s: float) -> PlacementProblem:
    return PlacementProblem(
        models=tuple(ProblemModel(name=name, architecture=ARCHITECTURE) for name in MODELS),
        profiles=read_profiles(PROFILES, hardware=DEVICE)[ARCHITECTURE],
        cluster=ServingCluster(
            device=DEVICE, num_devices=len(MODELS), devices_per_node=len(MODELS), memory_bytes=13 * 2**30
        ),
        workload=WorkloadSource(
            spec=f"gamma:rate={RATE:g},cv={CV:g}", duration_s=duration_s, seed=SEED, slo_scale=_NEVER_REFUSED
        ),
    )


def table(found: dict[str, Comparison], *, objective_s: float) -> str:
    """Tables the measured figures, with the simulator's in brackets."""

    def row(name: str, each: Comparison) -> str:
        in_time = [f"{np.mean(latency_s <= objective_s):.0%}" for latency_s in (each.measured, each.simulated)]
        mean = [format_duration(float(latency_s.mean())) for latency_s in (each.measured, each.simulated)]
        return f"  {name:12}{f'{in_time[0]} ({in_time[1]})':24}{mean[0]} ({mean[1]})"

    heading = f"  {'placement':12}{f'within {format_duration(objective_s)}':24}mean latency; in brackets: simulated"
    return "\n".join(["", heading, *(row(name, each) for name, each in found.items())])


def draw(found: dict[str, Comparison], *, objective_s: float, directory: Path) -> Path:
    """Draws how latencies are distributed (left), and the share that is in time (right)."""
    figure, (latencies, attainment) = panels("share of requests answered within", f"answered in {objective_s:.2g} s")
    for number, (name, each) in enumerate(found.items()):
        for latency_s, style in ((each.measured, "-"), (each.simulated, ":")):
            share = np.arange(1, len(latency_s) + 1) / len(latency_s)
            label = name if style == "-" else f"{name}, simulated"
            latencies.plot(np.sort(latency_s), share, style, color=f"C{number}", label=label)
        values = [100 * float(np.mean(latency_s <= objective_s)) for latency_s in (each.measured, each.simulated)]
        attainment.bar(number - 0.2, values[0], 0.4, color=f"C{number}")
        attainment.bar(number + 0.2, values[1], 0.4, color=f"C{number}", alpha=0.4)
    latencies.axvline(objective_s, color="grey", linewidth=0.8)
    latencies.set_xlabel("seconds")
    latencies.legend(fontsize=7)
    attainment.set_xticks(range(len(found)), list(found))
    attainment.set_ylabel("% (pale: simulated)")
    return save(figure, "demo-alpaserve", directory=directory)


def _compare(
    name: str, placement: Placement, problem: PlacementProblem, workloads: Workloads, directory: Path, *, endpoint: str
) -> Comparison:
    path, workload = directory / f"{name}.json", workloads.held_out
    write_placement(path, problem, placement, workloads)
    headway("apply", str(path), "--yes", state_dir=directory)
    print(f"\nSending the requests, with the models {name} ...", flush=True)
    measured = asyncio.run(send(workload, endpoint=endpoint))
    simulated = simulate(problem.placed_models, placement, workload, rules_of(problem))
    return Comparison(simulated=simulated.finish_s - workload.arrival_s, measured=measured.latency_s)


if __name__ == "__main__":
    main()
