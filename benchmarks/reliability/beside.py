"""One tenant's short requests at a steady rate, alone and beside a crowd of another's connections."""

import asyncio
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reliability.crowd import Crowd
from benchmarks.reliability.fairness import TENANTS
from benchmarks.reliability.footprint import Sample, sample, watch
from benchmarks.reliability.serving import MODEL_NAME, Serving, serving
from benchmarks.reliability.steady import SHORT, Seen, steady
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.units import format_bytes, format_duration

MAX_LATENCY_S = 1.0
CROWD_KEY, OTHER_KEY = "flood-key", "other-key"
_RATE_PER_S = 10.0
_WARM_UP_S = 3.0
_SAMPLE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Attributes:
    num_opened: connections of the crowd, those included that the gateway has ended meanwhile.
    num_open: at the end.
    grown_bytes: resident memory of all processes together, at its most beside the crowd, over that before.
    """

    alone: Seen
    beside: Seen
    num_opened: int
    num_open: int
    grown_bytes: int


@contextmanager
def serving_tenants(*options: str) -> Iterator[Serving]:
    """A stack of one emulated device for two tenants."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        file = Path(scratch) / "tenants.yaml"
        file.write_text(TENANTS)
        with serving("--emulate", "1xV100", "--tenants", str(file), *options) as stack:
            yield stack


async def measure_beside(stack: Serving, crowds: Sequence[Crowd], *, seconds: float) -> Beside:
    """So long alone, and so long from when the crowds have come."""
    client = CompletionClient(stack.url, model=MODEL_NAME, api_key=OTHER_KEY)
    samples: list[Sample] = []
    try:
        await client.run(steady(SHORT, rate_per_s=_RATE_PER_S, seconds=_WARM_UP_S))
        alone = await client.run(steady(SHORT, rate_per_s=_RATE_PER_S, seconds=seconds, seed=1))
        before = await sample(stack)
        watching = asyncio.create_task(watch(stack, samples, every_s=_SAMPLE_EVERY_S))
        for crowd in crowds:
            await crowd.come()
        beside = await client.run(steady(SHORT, rate_per_s=_RATE_PER_S, seconds=seconds, seed=2))
        num_open = sum(crowd.num_open for crowd in crowds)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        for crowd in crowds:
            await crowd.leave()
    finally:
        client.close()
    return Beside(
        alone=Seen.of(alone.outcomes),
        beside=Seen.of(beside.outcomes),
        num_opened=sum(crowd.num_opened for crowd in crowds),
        num_open=num_open,
        grown_bytes=max(each.rss_bytes for each in samples) - before.rss_bytes,
    )


def beside_table(found: Beside, *, crowd: str) -> Table:
    """The two runs, a row each."""
    table = Table("beside", "requests", "errors", "p50", "p99", title=f"short requests, {_RATE_PER_S:g} a second")
    for title, seen in (("nobody", found.alone), (crowd, found.beside)):
        written = ["-" if each is None else format_duration(each) for each in (seen.latency_s.p50, seen.latency_s.p99)]
        table.add_row(title, str(seen.num_requests), str(seen.num_errors), *written)
    table.caption = (
        f"{found.num_open:,} connections open at the end, {found.num_opened:,} opened; "
        f"memory of all processes grew by {format_bytes(max(0, found.grown_bytes))} at most"
    )
    return table


def conclude(
    found: Beside, *, crowd: str, name: str, document: Mapping[str, Any], max_grown_bytes: float = math.inf
) -> None:
    """Prints what was found, and writes it to benchmarks/results/NAME.json.

    Raises:
        Exit: it is not what is promised.
    """
    console = Console()
    console.print(beside_table(found, crowd=crowd))
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', {**document, 'found': asdict(found)})}")
    latency_s = found.beside.latency_s.p99
    faults = {
        f"{found.beside.num_errors} of the other tenant's requests failed": found.beside.num_errors > 0,
        f"the other tenant's p99 is over {MAX_LATENCY_S:g} s": latency_s is None or latency_s > MAX_LATENCY_S,
        f"memory grew by over {max_grown_bytes / 1e6:g} MB": found.grown_bytes > max_grown_bytes,
    }
    if told := [fault for fault, is_there in faults.items() if is_there]:
        console.print("; ".join(told), style="red")
        raise typer.Exit(1)
