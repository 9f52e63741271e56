"""Many connections that are idle, and streams that are read slowly: what they cost another tenant."""

import asyncio
from dataclasses import asdict
from typing import Annotated

from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.beside import CROWD_KEY, conclude, measure_beside, serving_tenants
from benchmarks.reliability.crowd import Crowd, be_idle, read_slowly
from benchmarks.reliability.serving import MODEL_NAME

_NUM_TOKENS = 300
_BYTES_PER_S = 1024


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
    conclude(
        found,
        crowd=f"{connections} idle connections, {streams} slow streams",
        name=name,
        document={"machine": asdict(machine), "connections": connections, "streams": streams},
    )
