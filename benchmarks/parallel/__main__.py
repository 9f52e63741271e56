"""How much faster two workers with one core each are than one, and whether they send what the formula says."""

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.model import DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.parallel.ranks import Burst, Service, serve_bursts
from benchmarks.parallel.volume import layer_elements, tensor_parallel_bytes, thesis_layer_elements
from benchmarks.serve.report import RESULTS_DIR, write_result, write_share
from headway.core.mesh import SINGLE, ParallelConfig
from headway.core.units import format_bytes
from headway.store.checkpoint import read_checkpoint

CORES = (0, 1)
TENSOR = ParallelConfig(tp=2)
MIN_TENSOR_SPEEDUP = 1.3
BURSTS = (
    Burst(num_requests=8, prompt_tokens=64, output_tokens=64),
    Burst(num_requests=32, prompt_tokens=128, output_tokens=64),
    Burst(num_requests=64, prompt_tokens=256, output_tokens=32),
)

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """One burst on one worker and on two, medians over the repeats.

    Attributes:
        equal_sequences: share of the greedy sequences that are the same, token for token.
    """

    burst: Burst
    alone_tokens_per_s: float
    group_tokens_per_s: float
    prefill_ratio: float
    decode_ratio: float
    collective_share: float
    equal_sequences: float

    @property
    def ratio(self) -> float:
        return self.group_tokens_per_s / self.alone_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    dtype: str
    speedups: tuple[Speedup, ...]
    counted_bytes: int
    derived_bytes: int


def main(
    *,
    repeats: Annotated[int, Option(min=1, help="Times that each layout is started, in turns.")] = 2,
    dtype: Annotated[str, Option(help="Of weights and KV cache.")] = "float32",
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "parallel",
) -> None:
    """Serve bursts with one worker on one core, and with two, each on its own, in turns."""
    make_benchmark_model(model_dir)
    alone, group = [], []
    for number in range(repeats):
        console.print(f"run {number + 1}: one worker, then {TENSOR}")
        alone.append(serve_bursts(model_dir, dtype=dtype, parallel=SINGLE, bursts=BURSTS, cores=CORES))
        group.append(serve_bursts(model_dir, dtype=dtype, parallel=TENSOR, bursts=BURSTS, cores=CORES))
    spec = read_checkpoint(model_dir, dtype=dtype).spec
    result = Result(
        dtype=dtype,
        speedups=tuple(compare(index, alone, group) for index in range(len(BURSTS))),
        counted_bytes=group[0].num_bytes,
        derived_bytes=sum(tensor_parallel_bytes(spec, shape, num_ranks=TENSOR.tp) for shape in group[0].shapes),
    )
    console.print(speedup_table(result.speedups))
    console.print(
        f"rank 1 sent {format_bytes(result.counted_bytes)} in {len(group[0].shapes)} steps, "
        f"{result.counted_bytes - result.derived_bytes} bytes more than the formula says"
    )
    console.print(volume_table(spec.hidden_size))
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', asdict(result))}")


def compare(index: int, alone: list[Service], group: list[Service]) -> Speedup:
    burst = BURSTS[index]
    ones, twos = [run.outcomes[index] for run in alone], [run.outcomes[index] for run in group]
    num_equal = sum(a == b for a, b in zip(ones[0].token_ids, twos[0].token_ids, strict=True))
    return Speedup(
        burst=burst,
        alone_tokens_per_s=median(outcome.tokens_per_s(burst) for outcome in ones),
        group_tokens_per_s=median(outcome.tokens_per_s(burst) for outcome in twos),
        prefill_ratio=median(o.prefill_s for o in ones) / median(o.prefill_s for o in twos),
        decode_ratio=median(o.decode_s for o in ones) / median(o.decode_s for o in twos),
        collective_share=median(o.collective_s / (o.prefill_s + o.decode_s) for o in twos),
        equal_sequences=num_equal / burst.num_requests,
    )


def speedup_table(speedups: tuple[Speedup, ...]) -> Table:
    """What the second worker gives."""
    table = Table("burst", title=f"{TENSOR}, one core each, against one worker on one core")
    for heading in ("one worker", "two", "ratio", "prefill", "decode", "in collectives", "same tokens"):
        table.add_column(heading, justify="right")
    for speedup in speedups:
        burst = speedup.burst
        table.add_row(
            f"{burst.num_requests} x {burst.prompt_tokens} + {burst.output_tokens}",
            f"{speedup.alone_tokens_per_s:.0f} tokens/s",
            f"{speedup.group_tokens_per_s:.0f} tokens/s",
            f"[{'green' if speedup.ratio >= MIN_TENSOR_SPEEDUP else 'red'}]{speedup.ratio:.2f}x[/]",
            f"{speedup.prefill_ratio:.2f}x",
            f"{speedup.decode_ratio:.2f}x",
            write_share(speedup.collective_share),
            write_share(speedup.equal_sequences),
        )
    return table


def volume_table(hidden_size: int, *, batch: int = 32) -> Table:
    """The derived volume beside the thesis' formula."""
    table = Table("N", title=f"elements that leave a rank per layer, batch {batch}, hidden size {hidden_size}")
    for heading in ("4 (N-1)/N B E, as sent", "4 (N-1) B E, as the thesis writes"):
        table.add_column(heading, justify="right")
    for num_ranks in (2, 4, 8):
        table.add_row(
            str(num_ranks),
            f"{layer_elements(hidden_size, batch=batch, num_ranks=num_ranks):,.0f}",
            f"{thesis_layer_elements(hidden_size, batch=batch, num_ranks=num_ranks):,.0f}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
