"""More than a worker can do, with an objective for the first token: who is let in, and what it costs the rest."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.serving import MODEL_NAME, serving
from benchmarks.reliability.steady import SHORT, capacity_per_s, steady
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.schedule import Send, send_on_time
from benchmarks.serve.summary import Spread
from benchmarks.serve.workload import make_workload
from headway.core.units import format_duration

MIN_GOODPUT = 0.95  # of the peak's
MAX_RECOVERY_S = 5.0
MIN_ATTAINMENT = 0.95
MAX_REFUSAL_S = 0.5
REFUSED = "HTTP 429"
_PLACES = 8
_CAPACITY_S = 8.0
_LOADS = (0.7, 0.9, 1.0, 1.1)
_AFTERWARDS = 0.5
_AFTERWARDS_S = 10.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What became of requests at one rate.

    Attributes:
        load: the rate, as a share of what the worker can do.
        num_met: of those that were admitted, in time by the client's clock.
        goodput_per_s: those, a second.
        refusal_s: how long the others waited to hear it.
        errors: of those that were neither answered nor refused.
    """

    load: float
    num_requests: int
    num_admitted: int
    num_met: int
    goodput_per_s: float
    refusal_s: Spread
    errors: tuple[str, ...]

    @property
    def attainment(self) -> float:
        return self.num_met / self.num_admitted if self.num_admitted else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Attributes:
    loads: in the order in which they were sent, the overload last.
    recovery_s: from the overload's end to the last request that was refused, or late, while half as much comes as the
        worker can do.
    """

    capacity_per_s: float
    loads: tuple[Load, ...]
    recovery_s: float

    @property
    def goodput(self) -> float:
        """Under the overload, as a share of the best of the others."""
        return self.loads[-1].goodput_per_s / max(load.goodput_per_s for load in self.loads[:-1])


def overload(
    *,
    times: Annotated[float, Option(min=1, help="The overload, of what the worker can do.")] = 3.0,
    seconds: Annotated[float, Option(min=5, help="How long each rate lasts.")] = 20.0,
    ttft_slo_s: Annotated[float, Option(min=0.01, help="Objective of each request.")] = 1.0,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-overload",
) -> None:
    """Rates up to what a worker can do, then several times that, then half of it."""
    machine = describe_machine()
    objective = ("--slo-ttft-ms", f"{1e3 * ttft_slo_s:g}")
    with serving("--emulate", "1xV100", "--max-num-seqs", str(_PLACES), *objective) as stack:
        found = asyncio.run(measure(stack.url, times=times, seconds=seconds, ttft_slo_s=ttft_slo_s))
    console.print(overload_table(found))
    document = {"machine": asdict(machine), "overload": asdict(found), "goodput": found.goodput}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    refusal_s = found.loads[-1].refusal_s.p99
    faults = {
        f"goodput is under {MIN_GOODPUT:.0%} of its peak": found.goodput < MIN_GOODPUT,
        f"fewer than {MIN_ATTAINMENT:.0%} of the admitted were in time": found.loads[-1].attainment < MIN_ATTAINMENT,
        f"refusals took more than {MAX_REFUSAL_S:g} s": refusal_s is not None and refusal_s > MAX_REFUSAL_S,
        f"all was not well {MAX_RECOVERY_S:g} s later": found.recovery_s > MAX_RECOVERY_S,
        "some were neither answered nor refused": any(load.errors for load in found.loads),
    }
    for fault in (fault for fault, is_so in faults.items() if is_so):
        console.print(fault, style="red")
    if any(faults.values()):
        raise typer.Exit(1)


async def measure(url: str, *, times: float, seconds: float, ttft_slo_s: float) -> Overload:
    """One rate after the other; half the worker's follows the overload at once."""
    client = CompletionClient(url, model=MODEL_NAME)
    try:
        capacity = await capacity_per_s(client, SHORT, num_clients=2 * _PLACES, seconds=_CAPACITY_S)
        loads = []
        for load in _LOADS:
            outcomes = await send_on_time(_sends(client, load * capacity, seconds))
            loads.append(load_of(outcomes, load=load, seconds=seconds, ttft_slo_s=ttft_slo_s))
        over = _sends(client, times * capacity, seconds)
        after = _sends(client, _AFTERWARDS * capacity, _AFTERWARDS_S)
        outcomes = await send_on_time([*over, *((seconds + arrival_s, send) for arrival_s, send in after)])
    finally:
        client.close()
    first, last = outcomes[: len(over)], outcomes[len(over) :]
    loads.append(load_of(first, load=times, seconds=seconds, ttft_slo_s=ttft_slo_s))
    not_well_s = [each.sent_s - seconds for each in last if each.error or each.ttft_s > ttft_slo_s]
    return Overload(capacity_per_s=capacity, loads=tuple(loads), recovery_s=max(not_well_s, default=0.0))


def _sends(client: CompletionClient, rate_per_s: float, seconds: float) -> list[tuple[float, Send]]:
    """Evenly spaced, so that rates differ by nothing else."""
    requests = make_workload(replace(steady(SHORT, rate_per_s=rate_per_s, seconds=seconds), rate_per_s=None))
    return [(number / rate_per_s, client.prepare(request)) for number, request in enumerate(requests)]


def load_of(outcomes: Sequence[Outcome], *, load: float, seconds: float, ttft_slo_s: float) -> Load:
    """Counts them."""
    admitted = [each for each in outcomes if not each.error]
    refused = [each for each in outcomes if each.error.startswith(REFUSED)]
    num_met = sum(each.ttft_s <= ttft_slo_s for each in admitted)
    return Load(
        load=load,
        num_requests=len(outcomes),
        num_admitted=len(admitted),
        num_met=num_met,
        goodput_per_s=num_met / max(seconds, *(each.finished_s for each in outcomes)),
        refusal_s=Spread.of(each.finished_s - each.sent_s for each in refused),
        errors=tuple(each.error for each in outcomes if each.error and not each.error.startswith(REFUSED)),
    )


def overload_table(found: Overload) -> Table:
    """A rate a row."""
    table = Table("load", title=f"a worker that gives {found.capacity_per_s:.0f} answers a second")
    for heading in ("asked", "let in", "in time", "goodput", "refused after (p99)", "errors"):
        table.add_column(heading, justify="right")
    for load in found.loads:
        refusal_s = load.refusal_s.p99
        table.add_row(
            f"{load.load:.0%}",
            str(load.num_requests),
            str(load.num_admitted),
            f"{load.attainment:.1%}",
            f"{load.goodput_per_s:.1f}/s",
            "-" if refusal_s is None else format_duration(refusal_s),
            str(len(load.errors)),
        )
    table.caption = (
        f"goodput under overload: {found.goodput:.1%} of the peak; well {format_duration(found.recovery_s)} later"
    )
    return table
