"""Bodies of which half is sent, and streams that nobody reads: what they cost another tenant, and in memory."""

import asyncio
from dataclasses import asdict
from typing import Annotated

from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.reliability.beside import CROWD_KEY, conclude, measure_beside, serving_tenants
from benchmarks.reliability.crowd import Crowd, half_a_body, unread
from benchmarks.reliability.serving import MODEL_NAME

MAX_GROWN_BYTES = 200 * 10**6
_NUM_TOKENS = 400
_NUM_SAMPLES = 4


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
    conclude(
        found,
        crowd=f"{bodies} half bodies, {streams} streams that nobody reads",
        name=name,
        document={"machine": asdict(machine), "bodies": bodies, "streams": streams},
        max_grown_bytes=MAX_GROWN_BYTES,
    )
