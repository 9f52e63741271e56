"""Eight streams, and beside them requests that ask for as much as one may: the longest gap between two of their tokens.

Neighbours' answers must be what they are alone, too; `tests/integration/test_neighbours.py` draws the same bodies.
"""

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.admission.__main__ import SMALL_DIRECTORY, make_small_model
from benchmarks.machine import describe_machine
from benchmarks.reliability.heavy_body import Body, HeavyBodies
from benchmarks.reliability.serving import MODEL_NAME
from benchmarks.reliability.steady import longest_pause_s
from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.workload import Request, WorkloadSpec, make_workload
from deploy.demo.stack import running_stack
from headway.core.units import format_duration

MAX_GAP_S = 1.0
_GIVEN_UP = 0  # the status of a request that its client left
_GIVEN_UP_S = 120.0
_NUM_NEIGHBOURS = 8
_MAX_MODEL_LEN, _VOCAB_SIZE = 2048, 4000
_NUM_SHOWN = 10
_NEIGHBOURS = WorkloadSpec(
    num_requests=_NUM_NEIGHBOURS,
    vocab_size=500,
    prompt_mean=32,
    prompt_sigma=0.0,
    output_mean=64,
    output_sigma=0.0,
    rate_per_s=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What eight neighbours saw beside one request.

    Attributes:
        heavy: what it asked for.
        status: that it was answered with; 0 where its client left before, after two minutes.
        took_s: until it had ended.
        gap_s: the longest of theirs, from one token to the next.
        num_wrong: of their answers, against those that they had alone.
    """

    heavy: str
    status: int
    took_s: float
    gap_s: float
    num_wrong: int
    num_errors: int


def heavy(
    *,
    bodies: Annotated[int, Option(min=1, help="Heavy requests, one after the other.")] = 60,
    minutes: Annotated[float, Option(min=0.1, help="None is sent after so long.")] = 30.0,
    seed: Annotated[int, Option(help="Of what they ask for.")] = 0,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability-heavy",
) -> None:
    """Time eight neighbours' streams beside requests that ask for as much as one may."""
    machine, console = describe_machine(), Console()
    model = make_small_model(SMALL_DIRECTORY)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        options = ("--model", f"{MODEL_NAME}={model}", "--max-model-len", str(_MAX_MODEL_LEN))
        with running_stack(Path(scratch) / "state", *options) as stack:
            alone_s, found = asyncio.run(_measure(stack.http_url, num_bodies=bodies, minutes=minutes, seed=seed))
    worst = sorted(found, key=lambda each: -each.gap_s)
    console.print(heavy_table(worst[:_NUM_SHOWN], alone_s=alone_s))
    result = {"machine": asdict(machine), "seed": seed, "alone_s": alone_s, "found": [asdict(each) for each in worst]}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', result)}")
    if worst[0].gap_s > MAX_GAP_S or any(each.num_wrong or each.num_errors or each.status >= 500 for each in found):
        console.print(f"a neighbour waited for over {MAX_GAP_S:g} s, or had another answer than alone", style="red")
        raise typer.Exit(1)


def heavy_table(worst: Sequence[Beside], *, alone_s: float) -> Table:
    """Those with the longest gaps, a row each."""
    table = Table("beside", "status", "took", "longest gap", "wrong", "errors", title="eight neighbours")
    table.add_row("nothing", "", "", format_duration(alone_s), "0", "0")
    for each in worst:
        counts = (str(each.num_wrong), str(each.num_errors))
        table.add_row(each.heavy, str(each.status), format_duration(each.took_s), format_duration(each.gap_s), *counts)
    return table


async def _measure(url: str, *, num_bodies: int, minutes: float, seed: int) -> tuple[float, list[Beside]]:
    client = CompletionClient(url, model=MODEL_NAME)
    drawn = HeavyBodies(random.Random(seed), max_model_len=_MAX_MODEL_LEN, vocab_size=_VOCAB_SIZE)
    found: list[Beside] = []
    neighbours = make_workload(_NEIGHBOURS)
    until_s = time.monotonic() + 60 * minutes
    async with httpx.AsyncClient(timeout=None) as others:
        await _round(client, neighbours)
        alone = await _round(client, neighbours)
        texts = [each.text for each in alone]
        for _ in range(num_bodies):
            if time.monotonic() > until_s:
                break
            what, body = drawn.draw()
            asking = asyncio.create_task(_ask(others, f"{url}/v1/completions", {"model": MODEL_NAME, **body}))
            began_s = time.perf_counter()
            outcomes: list[Outcome] = []
            while not outcomes or not asking.done():
                outcomes += await _round(client, neighbours)
            status = await asking
            whole = [each for each in outcomes if not each.error]
            wrong = [each for each in whole if each.text != texts[neighbours.index(each.request)]]
            found.append(
                Beside(
                    heavy=what,
                    status=status,
                    took_s=time.perf_counter() - began_s,
                    gap_s=max((longest_pause_s(each) for each in whole), default=math.inf),
                    num_wrong=len(wrong),
                    num_errors=len(outcomes) - len(whole),
                )
            )
    client.close()
    return max(longest_pause_s(each) for each in alone), found


async def _ask(client: httpx.AsyncClient, url: str, body: Body) -> int:
    """The status of the answer."""
    try:
        async with asyncio.timeout(_GIVEN_UP_S):
            return (await client.post(url, json=body)).status_code
    except TimeoutError:
        return _GIVEN_UP


async def _round(client: CompletionClient, neighbours: Sequence[Request]) -> list[Outcome]:
    """Each neighbour once, all at the same time."""
    reads = await asyncio.gather(*(client.prepare(each)(time.perf_counter()) for each in neighbours))
    return [read() for read in reads]
