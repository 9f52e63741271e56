"""Bursts to one worker with an objective for the first token: who is let in, and who of those is in time."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.admission.burst import Admission, Burst, measure
from benchmarks.machine import Machine, describe_machine
from benchmarks.model import BENCHMARK_SPEC, make_benchmark_model
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.model import RopeSpec
from headway.core.units import format_duration

LEAST_ATTAINMENT = 0.95
SMALL_DIRECTORY = Path("build/models/admission")
EMULATED_DIRECTORY = Path("build/models/admission-emulated")
EMULATED = ("--emulate", "1xV100")

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Attributes:
    bursts: by worker, in the order in which they came.
    loads: load averages of a minute behind each worker's bursts.
    """

    machine: Machine
    burst: Burst
    bursts: dict[str, list[Admission]]
    loads: dict[str, float]


def main(
    *,
    requests: Annotated[int, Option(min=1, help="Of a burst.")] = 80,
    prompt_tokens: Annotated[int, Option(min=4, help="Prompt tokens of each request.")] = 700,
    output_tokens: Annotated[int, Option(min=1, help="Output tokens of each request.")] = 8,
    ttft_slo_s: Annotated[float, Option(min=0.01, help="Objective of each request.")] = 1.0,
    bursts: Annotated[int, Option(min=1, help="One after the other.")] = 10,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "admission",
) -> None:
    """Send bursts to an emulated worker and to one that computes a small model."""
    machine, found, loads = describe_machine(), {}, {}
    burst = Burst(
        num_requests=requests,
        num_prompt_tokens=prompt_tokens,
        num_output_tokens=output_tokens,
        ttft_slo_s=ttft_slo_s,
    )
    small = make_small_model(SMALL_DIRECTORY)
    large = make_emulated_model(EMULATED_DIRECTORY, tokenizer=small)
    for worker, (model, options) in {"emulated": (large, EMULATED), "computes": (small, ())}.items():
        found[worker] = measure(model, burst, *options, num_bursts=bursts)
        loads[worker] = os.getloadavg()[0]
        console.print(burst_table(worker, found[worker]))
    result = Result(machine=machine, burst=burst, bursts=found, loads=loads)
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', asdict(result))}")
    if any(attainment_of(of_worker) < LEAST_ATTAINMENT for of_worker in found.values()):
        console.print(f"fewer than {LEAST_ATTAINMENT:.0%} of those that were let in were in time", style="red")
        raise typer.Exit(1)


def make_small_model(directory: Path) -> Path:
    """A Llama of 1.8 million parameters with random weights, whose prompts take a core some 0.1 s each."""
    small = replace(
        BENCHMARK_SPEC,
        vocab_size=4000,
        hidden_size=128,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=352,
        rope=RopeSpec(theta=10_000.0, rotary_dim=32),
    )
    return make_benchmark_model(directory, spec=small)


def make_emulated_model(directory: Path, *, tokenizer: Path) -> Path:
    """A configuration without weights, which is enough to an emulated worker: 1.1 billion parameters, of which a burst
    takes seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads((tokenizer / "config.json").read_text())
    large = {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 28, "num_attention_heads": 12}
    config |= {**large, "num_key_value_heads": 12, "head_dim": 128, "torch_dtype": "float16"}
    (directory / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, directory)
    return directory


def attainment_of(bursts: list[Admission]) -> float:
    """Of all that were let in, the share that was in time."""
    num_admitted = sum(burst.num_admitted for burst in bursts)
    return sum(burst.num_met for burst in bursts) / num_admitted if num_admitted else 1.0


def burst_table(worker: str, bursts: list[Admission]) -> Table:
    """A burst a row, and all of them together."""
    table = Table("burst", title=f"a worker that {worker}" if worker == "computes" else "an emulated worker")
    for heading in ("asked", "let in", "in time", "longest TTFT", "errors"):
        table.add_column(heading, justify="right")
    for number, burst in enumerate(bursts, start=1):
        longest = format_duration(burst.ttfts_s[-1]) if burst.ttfts_s else "-"
        counts = (burst.num_requests, burst.num_admitted, burst.num_met)
        table.add_row(str(number), *map(str, counts), longest, str(len(burst.errors)))
    table.add_row("all", "", "", f"{attainment_of(bursts):.1%}", "", "")
    return table


if __name__ == "__main__":
    typer.run(main)
