"""What one tenant's requests cost another, and what they tell it: the figures beside their targets."""

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.admission.__main__ import SMALL_DIRECTORY, make_small_model
from benchmarks.machine import describe_machine
from benchmarks.reliability.fairness import MODEL_NAME, TENANTS, Fairness, Flood, measure
from benchmarks.reliability.secrecy import Secrecy, measure_secrecy
from benchmarks.serve.report import RESULTS_DIR, write_result
from deploy.demo.stack import running_stack
from headway.core.units import format_duration

MAX_RATIO = 5.0
MAX_AREA = 0.55

console = Console()


def tenants(
    *,
    requests: Annotated[int, Option(min=4, help="Short requests of one tenant, one after the other.")] = 100,
    output_tokens: Annotated[int, Option(min=1, help="Output tokens of each.")] = 4,
    flood: Annotated[int, Option(min=1, help="Requests that the other tenant has under way.")] = 32,
    n: Annotated[int, Option(min=1, help="Samples of each of those.")] = 32,
    flood_tokens: Annotated[int, Option(min=1, help="Output tokens of each of their samples.")] = 400,
    pairs: Annotated[int, Option(min=4, help="Prompts of another tenant, and new ones, that are timed.")] = 1000,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "reliability",
) -> None:
    """Time one tenant's short requests alone, and while another floods the worker; and what their times tell of it."""
    machine, load = describe_machine(), Flood(num_requests=flood, n=n, num_output_tokens=flood_tokens)
    model = make_small_model(SMALL_DIRECTORY)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        file = Path(scratch) / "tenants.yaml"
        file.write_text(TENANTS)
        options = ("--model", f"{MODEL_NAME}={model}", "--tenants", str(file))
        with running_stack(Path(scratch) / "state", *options) as stack:
            found = asyncio.run(measure(stack.http_url, load, num_requests=requests, num_output_tokens=output_tokens))
            secrecy = asyncio.run(measure_secrecy(stack.http_url, num_pairs=pairs, seed=0))
    console.print(fairness_table(found))
    console.print(secrecy_table(secrecy))
    result = {"machine": asdict(machine), "flood": asdict(load), "fairness": asdict(found), "ratio": found.ratio}
    result["secrecy"] = asdict(secrecy)
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', result)}")
    if found.flooded.errors or found.ratio > MAX_RATIO:
        console.print(f"the other tenant's p99 is over {MAX_RATIO:g} times what it is alone", style="red")
        raise typer.Exit(1)
    if abs(secrecy.others - 0.5) > MAX_AREA - 0.5:
        console.print("times tell what another tenant has sent", style="red")
        raise typer.Exit(1)


def fairness_table(found: Fairness) -> Table:
    """The two runs, a row each."""
    table = Table("tenant beside it", "p50", "p99", "errors", title="short requests of one tenant")
    for title, run in (("none", found.alone), ("one that floods", found.flooded)):
        table.add_row(title, format_duration(run.p50_s), format_duration(run.p99_s), str(len(run.errors)))
    table.add_row("", "", f"{found.ratio:.1f} times", "")
    table.caption = f"the flood got {found.num_flood_tokens / found.flooded_s:,.0f} tokens/s meanwhile"
    return table


def secrecy_table(found: Secrecy) -> Table:
    """The areas, a row each."""
    table = Table("prompts that were sent before by", "AUC", title="told by the time to the first token")
    table.add_row("another tenant", f"{found.others:.3f}")
    table.add_row("the tenant itself", f"{found.own:.3f}")
    table.caption = f"{found.num_pairs:,} pairs; 0.5 is chance"
    return table
