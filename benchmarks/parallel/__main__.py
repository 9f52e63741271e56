"""How much faster two workers with one core each are than one, and whether they send what the formulas say."""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from benchmarks.model import BENCHMARK_SPEC, DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.parallel.burst import Burst
from benchmarks.parallel.long_decode import LongDecode
from benchmarks.parallel.ranks import RankWork, Service, do_work
from benchmarks.parallel.report import BurstRow, DecodeRow, burst_table, decode_table, volume_table
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.units import format_bytes
from headway.planner.serving.stages import with_fastest_stages

CORES = (0, 1)
BURSTS = (
    Burst(num_requests=8, prompt_tokens=64, output_tokens=64),
    Burst(num_requests=32, prompt_tokens=128, output_tokens=64),
    Burst(num_requests=64, prompt_tokens=256, output_tokens=32),
)
LARGE_BURSTS = tuple(Burst(num_requests=number, prompt_tokens=64, output_tokens=64) for number in (128, 256))
"""Of which each micro-batch is as large as the batches of the others, or larger: it reads a stage's weights once."""
SHORT_BURSTS = (Burst(num_requests=8, prompt_tokens=64, output_tokens=16),)
DECODES = tuple(LongDecode(num_sequences=number, context_tokens=16_384) for number in (4, 16, 64))
LONG_SPEC = replace(BENCHMARK_SPEC, max_position=32_768)
"""The benchmark model, with room for long sequences."""
LONG_DIRECTORY = DEFAULT_DIRECTORY.with_name("bench-llama-long")

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A layout of two workers against one.

    Attributes:
        min_speedup: the target for what it is meant for: bursts, or if there are any, long decodes.
    """

    parallel: ParallelConfig
    min_speedup: float
    bursts: tuple[Burst, ...] = BURSTS
    decodes: tuple[LongDecode, ...] = ()


CONTESTS = {
    "tp": Contest(parallel=ParallelConfig(tp=2), min_speedup=1.3),
    "pp": Contest(parallel=ParallelConfig(pp=2), min_speedup=1.6, bursts=(*BURSTS, *LARGE_BURSTS)),
    "cp": Contest(parallel=ParallelConfig(cp=2), min_speedup=1.5, bursts=SHORT_BURSTS, decodes=DECODES),
    "cp-tensor": Contest(
        parallel=ParallelConfig(cp=2, cp_ffn="tensor"), min_speedup=1.5, bursts=SHORT_BURSTS, decodes=DECODES
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one layout.

    Attributes:
        sent_bytes: by all ranks in one run.
        excess_bytes: beyond what the formulas say.
    """

    flags: str
    bursts: tuple[BurstRow, ...]
    decodes: tuple[DecodeRow, ...]
    num_steps: int
    sent_bytes: int
    excess_bytes: int
    is_as_derived: bool


def main(
    *,
    repeats: Annotated[int, Option(min=1, help="Times that each layout is started, in turns with one worker.")] = 2,
    only: Annotated[list[str] | None, Option(help=f"Of {', '.join(CONTESTS)}; all if left out.")] = None,
    dtype: Annotated[str, Option(help="Of weights and KV cache.")] = "float32",
    model_dir: Annotated[Path, Option(help="Benchmark model with long positions, made if absent.")] = LONG_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "parallel",
) -> None:
    """Let one worker on one core, and two, each on its own, do the same, in turns.

    Ends with 1 if a rank has sent anything else than the formulas say, however long things took.
    """
    make_benchmark_model(model_dir, spec=LONG_SPEC)
    spec = read_checkpoint(model_dir, dtype=dtype).spec
    results = [run(CONTESTS[each], spec, model_dir, dtype, repeats) for each in only or CONTESTS]
    print(burst_table([row for result in results for row in result.bursts]))
    print(decode_table([row for result in results for row in result.decodes]))
    print(volume_table(spec))
    for result in results:
        console.print(
            f"{result.flags}: {format_bytes(result.sent_bytes)} sent in {result.num_steps} steps, "
            f"{result.excess_bytes} bytes more than the formulas say"
        )
    document = {"dtype": dtype, "layouts": [asdict(result) for result in results]}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    sys.exit(0 if all(result.is_as_derived for result in results) else 1)


def run(contest: Contest, spec: ModelSpec, directory: Path, dtype: str, repeats: int) -> Result:
    parallel = with_fastest_stages(spec, contest.parallel)
    work = RankWork(directory=directory, dtype=dtype, bursts=contest.bursts, decodes=contest.decodes)
    alone: list[Service] = []
    group: list[Service] = []
    for number in range(repeats):
        console.print(f"run {number + 1}: one worker, then {parallel.flags}")
        alone.append(do_work(work, SINGLE, cores=CORES))
        group.append(do_work(work, parallel, cores=CORES))
    counted, derived = group[0].counted, group[0].derived(spec, parallel)
    sent_bytes = sum(sum(volumes.values()) for volumes in counted)
    return Result(
        flags=parallel.flags,
        bursts=tuple(
            BurstRow.of(
                parallel,
                burst,
                [each.outcomes[index] for each in alone],
                [each.outcomes[index] for each in group],
                min_speedup=None if work.decodes else contest.min_speedup,
            )
            for index, burst in enumerate(work.bursts)
        ),
        decodes=tuple(
            DecodeRow.of(
                parallel,
                decode,
                [each.timings[index] for each in alone],
                [each.timings[index] for each in group],
                min_speedup=contest.min_speedup,
            )
            for index, decode in enumerate(work.decodes)
        ),
        num_steps=len(group[0].shapes),
        sent_bytes=sent_bytes,
        excess_bytes=sent_bytes - sum(sum(volumes.values()) for volumes in derived),
        is_as_derived=counted == derived,
    )


if __name__ == "__main__":
    typer.run(main)
