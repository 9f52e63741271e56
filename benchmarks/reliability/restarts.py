"""Every process of a stack ended and started again, one after the other, while requests go on."""

import asyncio
import signal
import time
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.serving import MODEL_NAME, Serving, serving
from benchmarks.reliability.steady import SHORT, Seen, steady
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.workload import WorkloadSpec, make_workload
from headway.core.units import format_duration

_SETTLE_S = 1.0
_WARM_UP_S = 3.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Attributes:
    well_s: from SIGTERM until all was ready again.
    seen: by the requests that were sent meanwhile.
    """

    name: str
    well_s: float
    seen: Seen


def restarts(
    *,
    rate: Annotated[float, Option(min=0.1, help="Requests a second.")] = 20.0,
    output_tokens: Annotated[int, Option(min=4, help="Output tokens of each.")] = 32,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-restarts",
) -> None:
    """SIGTERM to every process but the supervisor, each once all is well after the one before."""
    machine = describe_machine()
    with serving("--emulate", "2xV100", "--gateways", "2") as stack:
        found = asyncio.run(measure(stack, rate_per_s=rate, num_output_tokens=output_tokens))
    console.print(restarts_table(found))
    document = {"machine": asdict(machine), "rate_per_s": rate, "restarts": [asdict(each) for each in found]}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    if any(each.seen.errors for each in found):
        console.print("requests failed", style="red")
        raise typer.Exit(1)


async def measure(stack: Serving, *, rate_per_s: float, num_output_tokens: int) -> list[Restart]:
    """One process after the other, by name; the gateways last."""
    spec = replace(SHORT, output_mean=num_output_tokens)
    client = CompletionClient(stack.url, model=MODEL_NAME)
    try:
        await client.run(steady(spec, rate_per_s=rate_per_s, seconds=_WARM_UP_S))
        names = sorted(await stack.pids(), key=lambda name: (name.startswith("gateway"), name))
        return [await _restart(stack, client, name, spec=spec, rate_per_s=rate_per_s) for name in names]
    finally:
        client.close()


async def _restart(
    stack: Serving, client: CompletionClient, name: str, *, spec: WorkloadSpec, rate_per_s: float
) -> Restart:
    is_over = asyncio.Event()
    asking = asyncio.create_task(_ask(client, spec, is_over, rate_per_s=rate_per_s))
    await asyncio.sleep(_SETTLE_S)
    ended = await stack.signal(name, signal.SIGTERM)
    well_s = await stack.wait_until_well(without=ended)
    await asyncio.sleep(_SETTLE_S)
    is_over.set()
    return Restart(name=name, well_s=well_s, seen=Seen.of(await asking))


async def _ask(
    client: CompletionClient, spec: WorkloadSpec, is_over: asyncio.Event, *, rate_per_s: float
) -> list[Outcome]:
    """Evenly spaced until it is over; returns when all are answered."""
    send = client.prepare(make_workload(spec)[0])
    asked = []
    while not is_over.is_set():
        asked.append(asyncio.create_task(send(time.perf_counter())))
        await asyncio.sleep(1 / rate_per_s)
    return [read() for read in await asyncio.gather(*asked)]


def restarts_table(found: list[Restart]) -> Table:
    """A process a row."""
    table = Table("process", title="each process ended by SIGTERM")
    for heading in ("well after", "requests", "errors", "longest pause p99"):
        table.add_column(heading, justify="right")
    for each in found:
        pause_s = each.seen.pause_s.p99
        table.add_row(
            each.name,
            format_duration(each.well_s),
            str(each.seen.num_requests),
            str(each.seen.num_errors),
            "-" if pause_s is None else format_duration(pause_s),
        )
    table.caption = "\n".join(f"{each.name}: {error}" for each in found for error in each.seen.errors)
    return table
