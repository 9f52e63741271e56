"""KV memory saved by sharing blocks among samples, beams and requests with one prefix, beside the dissertation's."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.engine.dataset import DATASETS
from benchmarks.figure import panels, save
from benchmarks.serve.report import RESULTS_DIR, write_result, write_share
from benchmarks.sharing.case import CASES, REPORTED, Method
from benchmarks.sharing.measurement import SEED, Sharing, measure_sharing
from benchmarks.sharing.prompt import Corpus
from deploy.demo.make_model import DEFAULT_DIRECTORY, make_demo_model
from headway.checkpoint.model_directory import read_checkpoint
from headway.engine.config import EngineConfig
from headway.runner.model_runner import ModelRunner

MAX_NUM_SEQS = 64
# Twice what the demo model was trained for, so that the datasets' lengths fit. Its text makes no sense out there, but
# it still prefers some continuations to others, which is all that sharing among beams depends on.
MAX_MODEL_LEN = 2048

console = Console()


def main(
    *,
    requests: Annotated[int, Option(min=20, help="Requests of each case.")] = 200,
    block_size: Annotated[int, Option(min=1, help="Tokens in a KV block.")] = 16,
    threads: Annotated[int, Option(min=1, help="CPU threads that compute.")] = 1,
    model_dir: Annotated[Path, Option(help="Demo model, made and trained if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "sharing",
) -> None:
    """Serve every case with the real engine and the demo model, and count blocks in every step."""
    torch.set_num_threads(threads)
    checkpoint = read_checkpoint(make_demo_model(model_dir))
    checkpoint = replace(checkpoint, spec=replace(checkpoint.spec, max_position=MAX_MODEL_LEN))
    config = EngineConfig(
        num_blocks=MAX_NUM_SEQS * MAX_MODEL_LEN // block_size,
        block_size=block_size,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        vocab_size=checkpoint.spec.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    runner = ModelRunner(checkpoint, num_blocks=config.num_blocks, block_size=block_size)
    found = []
    for case in CASES:
        corpus = Corpus(checkpoint.tokenizer_file, seed=SEED)
        sharing = measure_sharing(case, runner, config=config, corpus=corpus, num_requests=requests)
        console.print(f"{case.dataset.name}, {case.method} {case.size}: {write_share(sharing.saved)} saved")
        found.append(sharing)
    console.print(sharing_table(found))
    console.print(f"drawn to {draw(found, name)}")
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', {'cases': [asdict(s) for s in found]})}")


def sharing_table(found: Sequence[Sharing]) -> Table:
    """One row a case; what the dissertation reports stands beside its smallest and its largest size."""
    table = Table("dataset", "shared by", title="KV blocks saved by sharing, mean over steps")
    for heading in ("size", "prompt", "output", "saved", "dissertation"):
        table.add_column(heading, justify="right")
    for sharing in found:
        case = sharing.case
        table.add_row(
            case.dataset.name,
            case.method,
            str(case.size),
            f"{sharing.mean_prompt_tokens:.0f}",
            f"{sharing.mean_output_tokens:.0f}",
            write_share(sharing.saved),
            reported(sharing),
        )
    return table


def reported(sharing: Sharing) -> str:
    """The dissertation's figure for this case: it gives those of sizes 2 and 6."""
    ends = REPORTED.get((sharing.case.dataset.name, sharing.case.method))
    if ends is None or sharing.case.size not in (2, 6):
        return ""
    return write_share(ends[sharing.case.size == 6])


def draw(found: Sequence[Sharing], name: str) -> Path:
    """Saved share over size, for samples and for beams; the dissertation's ends as crosses (its figure 5.15)."""
    methods = (Method.PARALLEL, Method.BEAM)
    figure, axes = panels(*methods)
    for axis, method in zip(axes, methods, strict=True):
        for dataset in DATASETS:
            cases = [s for s in found if s.case.method is method and s.case.dataset == dataset]
            sizes = [s.case.size for s in cases]
            (line,) = axis.plot(sizes, [100 * s.saved for s in cases], marker="o", label=dataset.name)
            ends = [100 * share for share in REPORTED[dataset.name, method]]
            axis.plot((2, 6), ends, "x", color=line.get_color(), label=f"{dataset.name}, dissertation")
        axis.set_xlabel("sequences in a group")
        axis.set_ylabel("blocks saved (%)")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    return save(figure, name)


if __name__ == "__main__":
    typer.run(main)
