"""How well the time of a model that nobody has run is predicted from a profile of the hardware."""

from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.profile.points import ModelPoint, draw_points
from benchmarks.profile.prediction import Prediction, capture_point, measure_point, predict
from benchmarks.profile.terapipe import ContextError, context_errors
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.cli.hardware_measure import measure_here
from headway.core.cost.measured import MeasuredCosts
from headway.core.hardware.calibration import HardwareWanted
from headway.core.hardware.family import COMPUTE
from headway.core.units import format_duration
from headway.worker.calibration.timer import Timer

STATE_DIR = Path("build/bench-profile")
TERAPIPE = Path("../shared/data/terapipe")
MEDIAN_TARGET, TENTH_TARGET = 0.10, 0.25

console = Console()


def main(
    *,
    threads: Annotated[int, Option(min=1, help="That compute, in the hardware profile and in the models.")] = 1,
    rounds: Annotated[int, Option(min=1, help="Times that all points are measured; the median pass counts.")] = 2,
    fresh: Annotated[bool, Option("--fresh/--resume", help="Measure the hardware anew.")] = True,
    state_dir: Annotated[Path, Option(help="Where the hardware profile is kept.")] = STATE_DIR,
    terapipe: Annotated[Path, Option(help="TeraPipe's tables; left out where there are none.")] = TERAPIPE,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "profile",
) -> None:
    """Profile the hardware, predict 30 points, measure them, and compare."""
    families = [family.name for family in COMPUTE]
    wanted = HardwareWanted(families=tuple(families), max_ranks=1, fresh=fresh)
    profile = measure_here(wanted, device="cpu", num_threads=threads, state_dir=state_dir.resolve())
    torch.set_num_threads(threads)
    points = list(draw_points())
    measured_s = measure_all(points, Timer.of(torch.device("cpu"), num_threads=threads), rounds=rounds)
    costs = MeasuredCosts(profile)
    predictions = [predict(capture_point(point), costs, measured_s=measured_s[point]) for point in points]
    tables = list(context_errors(terapipe)) if terapipe.is_dir() else []
    report(predictions, tables)
    errors = [abs(prediction.error) for prediction in predictions]
    document = {
        "threads": threads,
        "hardware": asdict(profile.machine),
        "median_error": median(errors),
        "ninetieth_percentile": ninetieth(errors),
        "points": [asdict(prediction) | {"error": prediction.error} for prediction in predictions],
        "terapipe": [asdict(table) for table in tables],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def measure_all(points: list[ModelPoint], timer: Timer, *, rounds: int) -> dict[ModelPoint, float]:
    """In turns, so that a disturbance of some minutes spoils no point. What is predicted is typical: the median too."""
    passes_s: dict[ModelPoint, list[float]] = {point: [] for point in points}
    for number in range(rounds):
        with console.status("") as status:
            for point in points:
                status.update(f"round {number + 1}: {point}")
                passes_s[point] += measure_point(point, timer)
    return {point: median(seconds) for point, seconds in passes_s.items()}


def ninetieth(errors: list[float]) -> float:
    return quantiles(errors, n=10)[8]


def report(predictions: list[Prediction], tables: list[ContextError]) -> None:
    table = Table("model", "predicted", "measured", "error", "most of it")
    for prediction in predictions:
        kinds = sorted(prediction.seconds_by_kind.items(), key=lambda item: -item[1])[:3]
        table.add_row(
            prediction.point,
            format_duration(prediction.predicted_s),
            format_duration(prediction.measured_s),
            f"{prediction.error:+.1%}",
            ", ".join(f"{kind} {seconds / prediction.predicted_s:.0%}" for kind, seconds in kinds),
        )
    console.print(table)
    errors = [abs(prediction.error) for prediction in predictions]
    console.print(
        f"median error {median(errors):.1%} (target {MEDIAN_TARGET:.0%}), "
        f"90th percentile {ninetieth(errors):.1%} (target {TENTH_TARGET:.0%})"
    )
    for each in tables:
        console.print(
            f"TeraPipe {each.table}: context term of {each.num_held_out} held-out slices within "
            f"{each.median:.2%} (median) and {each.largest:.2%} (largest)"
        )


if __name__ == "__main__":
    typer.run(main)
