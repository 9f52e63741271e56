"""A stack at a part of what it can do, for long, while clients leave and keys come and go: what grows meanwhile."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated

import httpx
import typer
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.footprint import Footprint, Sample, Slope, watch
from benchmarks.reliability.serving import MODEL_NAME, Serving, serving
from benchmarks.reliability.steady import SHORT, Seen, capacity_per_s, steady
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.client.stack import find_stack
from headway.core.units import format_duration

_PLACES = 8
_CAPACITY_S = 8.0
_SAMPLE_EVERY_S = 5.0
_WARM_UP = 0.25  # of the time, which slopes leave out
_ROUND_S = 30.0
_LEAVES_AFTER_S = 0.2  # at most
_SURE = 3.0  # standard errors from which on a slope is one
_MIB = 1024**2
MAX_RSS_MIB_PER_H = 20.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much one process, or Redis's memory, grows in an hour."""

    rss_bytes: Slope
    num_descriptors: Slope
    num_threads: Slope


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """Attributes:
    seen: by those who stayed.
    num_left: clients that went away before their answer's end.
    growths: by process.
    redis_bytes: what Redis says it uses.
    p99_s: latency's 99th percentile, seconds an hour.
    latencies_p99_s: of each part of the run.
    """

    capacity_per_s: float
    rate_per_s: float
    seen: Seen
    num_left: int
    num_samples: int
    growths: dict[str, Growth]
    redis_bytes: Slope
    p99_s: Slope
    latencies_p99_s: tuple[float, ...]


def soak(
    *,
    minutes: Annotated[float, Option(min=2, help="How long; what is promised is said of 60.")] = 60.0,
    load: Annotated[float, Option(min=0.01, max=1, help="Share of the answers a second that were measured.")] = 0.7,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-soak",
) -> None:
    """Steady load with clients that leave, and the slopes of memory, descriptors, threads and latency."""
    machine = describe_machine()
    with serving("--emulate", "2xV100", "--max-num-seqs", str(_PLACES)) as stack:
        found = asyncio.run(measure(stack, minutes=minutes, load=load))
    console.print(soak_table(found))
    document = {"machine": asdict(machine), "minutes": minutes, "soak": asdict(found)}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    growing = [name for name, growth in found.growths.items() if is_growing(growth)]
    if found.seen.errors or growing:
        console.print(f"requests failed, or these grow: {', '.join(growing) or 'none'}", style="red")
        raise typer.Exit(1)


def is_growing(growth: Growth) -> bool:
    """Surely, and by more than a little memory or one descriptor or thread an hour."""
    bounds = (
        (growth.rss_bytes, MAX_RSS_MIB_PER_H * _MIB),
        (growth.num_descriptors, 1.0),
        (growth.num_threads, 1.0),
    )
    return any(slope.per_h - _SURE * slope.error_per_h > bound for slope, bound in bounds)


async def measure(stack: Serving, *, minutes: float, load: float) -> Soak:
    """Half a minute's requests after the other, until the time is over."""
    client = CompletionClient(stack.url, model=MODEL_NAME)
    samples: list[Sample] = []
    redis_bytes: list[int] = []
    left: list[str] = []
    try:
        capacity = await capacity_per_s(client, SHORT, num_clients=4 * _PLACES, seconds=_CAPACITY_S)
        beside = [
            asyncio.create_task(watch(stack, samples, every_s=_SAMPLE_EVERY_S)),
            asyncio.create_task(_watch_redis(stack, redis_bytes)),
            asyncio.create_task(_leave_early(stack.url, left, rate_per_s=load * capacity / 10)),
        ]
        until_s = time.monotonic() + 60 * minutes
        rounds: list[tuple[Outcome, ...]] = []
        times_s: list[float] = []
        while time.monotonic() < until_s:
            times_s.append(time.monotonic())
            spec = steady(SHORT, rate_per_s=0.9 * load * capacity, seconds=_ROUND_S, seed=len(rounds))
            rounds.append((await client.run(spec)).outcomes)
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    finally:
        client.close()
    p99s_s = [Seen.of(outcomes).latency_s.p99 or 0.0 for outcomes in rounds]
    warm = int(_WARM_UP * len(redis_bytes))
    settled = int(_WARM_UP * len(rounds))
    return Soak(
        capacity_per_s=capacity,
        rate_per_s=load * capacity,
        seen=Seen.of(outcome for outcomes in rounds for outcome in outcomes),
        num_left=len(left),
        num_samples=len(samples),
        growths=growths(samples),
        redis_bytes=Slope.of([_SAMPLE_EVERY_S * index for index in range(warm, len(redis_bytes))], redis_bytes[warm:]),
        p99_s=Slope.of(times_s[settled:], p99s_s[settled:]),
        latencies_p99_s=tuple(p99s_s),
    )


def growths(samples: Sequence[Sample]) -> dict[str, Growth]:
    """Of the processes that were there from the first sample to the last, without the first part of the time."""
    settled = samples[int(_WARM_UP * len(samples)) :]
    times_s = [each.time_s for each in settled]
    lasting = set.intersection(*(set(each.processes) for each in settled))

    def course(name: str) -> list[Footprint]:
        return [each.processes[name] for each in settled]

    return {
        name: Growth(
            rss_bytes=Slope.of(times_s, [each.rss_bytes for each in course(name)]),
            num_descriptors=Slope.of(times_s, [each.num_descriptors for each in course(name)]),
            num_threads=Slope.of(times_s, [each.num_threads for each in course(name)]),
        )
        for name in sorted(lasting)
    }


async def _watch_redis(stack: Serving, found: list[int]) -> None:
    async with Redis(unix_socket_path=find_stack(stack.state_dir).redis_url.removeprefix("unix://")) as redis:
        while True:
            found.append(int((await redis.info("memory"))["used_memory"]))
            await asyncio.sleep(_SAMPLE_EVERY_S)


async def _leave_early(url: str, left: list[str], *, rate_per_s: float) -> None:
    """Clients, each with a connection of its own, that go away somewhere in their answer."""
    draw = random.Random(0)
    async with asyncio.TaskGroup() as clients:
        while True:
            clients.create_task(_leave(url, left, after_s=draw.uniform(0, _LEAVES_AFTER_S)))
            await asyncio.sleep(draw.expovariate(rate_per_s))


async def _leave(url: str, left: list[str], *, after_s: float) -> None:
    body = {"model": MODEL_NAME, "prompt": [5, 6, 7, 8], "max_tokens": 400, "ignore_eos": True, "stream": True}
    with suppress(TimeoutError):
        async with asyncio.timeout(after_s), httpx.AsyncClient(base_url=url) as client:
            await client.post("/v1/completions", json=body)
    left.append(url)


def soak_table(found: Soak) -> Table:
    """A process a row."""
    table = Table("process", title=f"{found.seen.num_requests:,} requests, {found.num_left:,} clients that left")
    for heading in ("memory", "descriptors", "threads"):
        table.add_column(f"{heading} an hour", justify="right")
    for name, growth in found.growths.items():
        table.add_row(
            name,
            _written(growth.rss_bytes, _MIB, " MiB"),
            _written(growth.num_descriptors),
            _written(growth.num_threads),
        )
    table.add_row("what Redis uses", _written(found.redis_bytes, _MIB, " MiB"), "", "")
    p99 = found.seen.latency_s.p99
    table.caption = (
        f"errors: {found.seen.num_errors}; p99 {'-' if p99 is None else format_duration(p99)}, "
        f"which changes by {_written(found.p99_s, 1e-3, ' ms')} an hour"
    )
    return table


def _written(slope: Slope, unit: float = 1.0, suffix: str = "") -> str:
    return f"{slope.per_h / unit:+.1f} ± {slope.error_per_h / unit:.1f}{suffix}"
