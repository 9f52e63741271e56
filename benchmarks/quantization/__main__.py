"""Weights in int8: what they cost in accuracy, and what they give in speed and memory."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.model import DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.quantization.accuracy import Accuracy, compare, dialogue_texts, random_texts
from benchmarks.quantization.speed import Format, Speed, measure_each
from benchmarks.serve.report import RESULTS_DIR, write_result
from deploy.demo.make_model import DEFAULT_DIRECTORY as DEMO_DIRECTORY
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.units import format_bytes, format_duration

QUANTIZATION = "int8"
FORMATS = [
    Format(dtype="float32"),
    Format(dtype="float32", quantization=QUANTIZATION),
    Format(dtype="bfloat16"),
    Format(dtype="bfloat16", quantization=QUANTIZATION),
]
ROWS = [1, 8, 64]

console = Console()


def main(
    *,
    model_dir: Annotated[
        Path, Option(help="Model to time; the benchmark model is made if absent.")
    ] = DEFAULT_DIRECTORY,
    demo_dir: Annotated[Path, Option(help="The trained demo model; left out if absent.")] = DEMO_DIRECTORY,
    threads: Annotated[int, Option(min=1, help="Compute threads.")] = 2,
    repeats: Annotated[int, Option(min=1, help="Timed decode steps of each size.")] = 20,
    prompt_tokens: Annotated[int, Option(min=1, help="Length of the timed prompt.")] = 512,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "quantization",
) -> None:
    """Compare a model with weights in int8 with the same model as it is stored."""
    if model_dir == DEFAULT_DIRECTORY:
        make_benchmark_model(model_dir)
    torch.set_num_threads(threads)
    texts = {model_dir: random_texts(read_checkpoint(model_dir).spec.vocab_size)}
    if demo_dir.is_dir():
        texts[demo_dir] = dialogue_texts(demo_dir)
    accuracies = {
        directory.name: compare(directory, found, dtype="float32", quantization=QUANTIZATION)
        for directory, found in texts.items()
    }
    speeds = measure_each(
        model_dir, FORMATS, rows=ROWS, prompt_tokens=prompt_tokens, num_threads=threads, repeats=repeats
    )
    console.print(accuracy_table(accuracies))
    console.print(speed_table(speeds, prompt_tokens=prompt_tokens, title=f"{model_dir.name}, {threads} threads"))
    document = {
        "accuracy": {model: asdict(accuracy) for model, accuracy in accuracies.items()},
        "speed": [asdict(speed) for speed in speeds],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def accuracy_table(accuracies: dict[str, Accuracy]) -> Table:
    table = Table("float32 against int8", *accuracies, title="accuracy")
    found = accuracies.values()
    table.add_row("positions", *(str(a.num_positions) for a in found))
    table.add_row("logit error, mean", *(f"{a.mean_error:.4f}" for a in found))
    table.add_row("logit error, largest", *(f"{a.max_error:.3f}" for a in found))
    table.add_row("(deviation of the logits)", *(f"{a.logit_deviation:.2f}" for a in found))
    table.add_row("same best token", *(f"{100 * a.agreement:.2f} %" for a in found))
    table.add_row("KL divergence (nats)", *(f"{a.divergence:.1e}" for a in found))
    table.add_row("perplexity, float32", *(f"{a.kept_perplexity:.5g}" for a in found))
    table.add_row("perplexity, int8", *(f"{a.rounded_perplexity:.5g}" for a in found))
    return table


def speed_table(speeds: list[Speed], *, prompt_tokens: int, title: str) -> Table:
    table = Table("weights", title=title)
    for heading in ("counted", "loaded", "peak", *(f"{rows} rows" for rows in ROWS), f"prompt {prompt_tokens}"):
        table.add_column(heading, justify="right")
    for speed in speeds:
        sizes = (speed.weight_bytes, speed.loaded_bytes, speed.peak_bytes)
        times_s = (*speed.step_s.values(), speed.prefill_s)
        table.add_row(speed.format.title, *map(format_bytes, sizes), *map(format_duration, times_s))
    return table


if __name__ == "__main__":
    typer.run(main)
