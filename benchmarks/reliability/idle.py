"""Many connections that are idle, and streams that are read slowly: what they cost another tenant."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.beside import CROWD_KEY, beside_table, measure_beside, serving_tenants
from benchmarks.reliability.crowd import Crowd, be_idle, read_slowly
from benchmarks.reliability.serving import MODEL_NAME
from benchmarks.serve.report import RESULTS_DIR, write_result

MAX_LATENCY_S = 1.0
_NUM_TOKENS = 300
_BYTES_PER_S = 1024

console = Console()


def idle(
    *,
    connections: Annotated[int, Option(min=1, help="That have had an answer, and then nothing.")] = 1000,
    streams: Annotated[int, Option(min=1, help="That are read at 1 KiB a second.")] = 1000,
    seconds: Annotated[float, Option(min=5, help="How long, with and without them.")] = 30.0,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-idle",
) -> None:
    """Idle connections and slow readers of one tenant beside the short requests of another."""
    machine = describe_machine()
    with serving_tenants() as stack:
        slow = read_slowly(model=MODEL_NAME, api_key=CROWD_KEY, num_tokens=_NUM_TOKENS, bytes_per_s=_BYTES_PER_S)
        crowds = [
            Crowd(url=stack.url, hold=be_idle, num_clients=connections),
            Crowd(url=stack.url, hold=slow, num_clients=streams),
        ]
        found = asyncio.run(measure_beside(stack, crowds, seconds=seconds))
    console.print(beside_table(found, crowd=f"{connections} idle connections, {streams} slow streams"))
    document = {"machine": asdict(machine), "connections": connections, "streams": streams, "idle": asdict(found)}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    latency_s = found.beside.latency_s.p99
    if found.beside.errors or latency_s is None or latency_s > MAX_LATENCY_S:
        console.print(f"the other tenant's p99 is over {MAX_LATENCY_S:g} s, or requests failed", style="red")
        raise typer.Exit(1)
