"""Workers that are killed in turns while requests go on: which answers are lost, and how long the others pause."""

import asyncio
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.serving import MODEL_NAME, Serving, serving
from benchmarks.reliability.steady import SHORT, Seen, capacity_per_s, longest_pause_s, num_wrong, steady
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.units import format_duration

MAX_PAUSE_S = 1.0
_PLACES = 8  # of each worker: so many sequences at once
_CAPACITY_S = 8.0
_NUM_CHECKED = 100

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Attributes:
    capacity_per_s: answers a second that all workers gave before.
    num_wrong: of the answers with the longest pauses, those that differ from what they are without a kill.
    """

    capacity_per_s: float
    rate_per_s: float
    num_kills: int
    seen: Seen
    num_wrong: int


def kills(
    *,
    minutes: Annotated[float, Option(min=0.1, help="How long requests go on.")] = 10.0,
    workers: Annotated[int, Option(min=2, help="Emulated devices, a worker each.")] = 4,
    every_s: Annotated[float, Option(min=1, help="Seconds from one kill -9 to the next.")] = 10.0,
    load: Annotated[float, Option(min=0.01, max=1, help="Share of the answers a second that were measured.")] = 0.5,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-kills",
) -> None:
    """kill -9 of a worker after the other, under load."""
    machine = describe_machine()
    with serving("--emulate", f"{workers}xV100", "--max-num-seqs", str(_PLACES)) as stack:
        found = asyncio.run(measure(stack, minutes=minutes, num_workers=workers, every_s=every_s, load=load))
    console.print(kills_table(found))
    document = {"machine": asdict(machine), "kills": asdict(found)}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    pause_s = found.seen.pause_s.p99
    if found.seen.errors or found.num_wrong or pause_s is None or pause_s > MAX_PAUSE_S:
        console.print(f"answers were lost or wrong, or the pause's p99 is over {MAX_PAUSE_S:g} s", style="red")
        raise typer.Exit(1)


async def measure(stack: Serving, *, minutes: float, num_workers: int, every_s: float, load: float) -> Kills:
    """Measures what the workers can do, and then kills one of them every so often."""
    client = CompletionClient(stack.url, model=MODEL_NAME)
    try:
        capacity = await capacity_per_s(client, SHORT, num_clients=2 * _PLACES * num_workers, seconds=_CAPACITY_S)
        killed: list[int] = []
        killing = asyncio.create_task(_kill(stack, killed, num_workers=num_workers, every_s=every_s))
        run = await client.run(steady(SHORT, rate_per_s=load * capacity, seconds=60 * minutes))
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
        await stack.wait_until_well()
        longest = sorted((each for each in run.outcomes if not each.error), key=longest_pause_s)[-_NUM_CHECKED:]
        wrong = await num_wrong(client, longest)
    finally:
        client.close()
    return Kills(
        capacity_per_s=capacity,
        rate_per_s=load * capacity,
        num_kills=len(killed),
        seen=Seen.of(run.outcomes),
        num_wrong=wrong,
    )


async def _kill(stack: Serving, killed: list[int], *, num_workers: int, every_s: float) -> None:
    for number in cycle(range(num_workers)):
        await asyncio.sleep(every_s)
        killed.append(await stack.signal(f"worker-{number}", signal.SIGKILL))


def kills_table(found: Kills) -> Table:
    """What was sent, lost and waited for."""
    table = Table("figure", title="a worker killed again and again")
    table.add_column("value", justify="right")
    pause = found.seen.pause_s
    table.add_row("answers a second, all workers", f"{found.capacity_per_s:.0f}")
    table.add_row("requests a second", f"{found.rate_per_s:.0f}")
    table.add_row("kills", str(found.num_kills))
    table.add_row("requests", f"{found.seen.num_requests:,}")
    table.add_row("lost", str(found.seen.num_errors))
    table.add_row("wrong", str(found.num_wrong))
    for title, value in (("longest pause p50", pause.p50), ("longest pause p99", pause.p99)):
        table.add_row(title, "-" if value is None else format_duration(value))
    table.caption = "\n".join(f"{number}: {error}" for error, number in found.seen.errors.items())
    return table
