"""Bodies of which half is sent, and streams that nobody reads: what they cost another tenant, and in memory."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.beside import CROWD_KEY, beside_table, measure_beside, serving_tenants
from benchmarks.reliability.crowd import Crowd, half_a_body, unread
from benchmarks.reliability.serving import MODEL_NAME
from benchmarks.serve.report import RESULTS_DIR, write_result

MAX_LATENCY_S = 1.0
MAX_GROWN_BYTES = 200 * 10**6
_NUM_TOKENS = 400
_NUM_SAMPLES = 4

console = Console()


def held(
    *,
    bodies: Annotated[int, Option(min=1, help="Clients that send half of a body.")] = 1100,
    streams: Annotated[int, Option(min=1, help="Clients that do not read.")] = 1100,
    seconds: Annotated[float, Option(min=5, help="How long, with and without them.")] = 60.0,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-held",
) -> None:
    """Half bodies and streams that nobody reads, of one tenant, beside the short requests of another."""
    machine = describe_machine()
    with serving_tenants() as stack:
        half = half_a_body(model=MODEL_NAME, api_key=CROWD_KEY)
        stream = unread(model=MODEL_NAME, api_key=CROWD_KEY, num_tokens=_NUM_TOKENS, n=_NUM_SAMPLES)
        crowds = [
            Crowd(url=stack.url, hold=half, num_clients=bodies),
            Crowd(url=stack.url, hold=stream, num_clients=streams),
        ]
        found = asyncio.run(measure_beside(stack, crowds, seconds=seconds))
    console.print(beside_table(found, crowd=f"{bodies} half bodies, {streams} streams that nobody reads"))
    document = {"machine": asdict(machine), "bodies": bodies, "streams": streams, "held": asdict(found)}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    latency_s = found.beside.latency_s.p99
    if found.beside.errors or latency_s is None or latency_s > MAX_LATENCY_S or found.grown_bytes > MAX_GROWN_BYTES:
        console.print(
            f"requests failed, or the other tenant's p99 is over {MAX_LATENCY_S:g} s, or memory grew by over 200 MB",
            style="red",
        )
        raise typer.Exit(1)
