"""How much of what one matrix product attains a BERT attains by itself: what a faster library could gain at most."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.encoders.checkpoint import SEED, VOCAB_SIZE, make_bert
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.backend import EAGER
from headway.core.infer import InferSequence
from headway.core.served_backend import serving_packages
from headway.runner.encoder_runner import EncoderRunner

PRODUCT = "one product"

console = Console()


def main(
    *,
    texts: Annotated[str, Option(help="Texts of a batch.")] = "1 8 24 48",
    mean_tokens: Annotated[int, Option(min=4, help="Of a text; lengths are drawn anew for each round.")] = 32,
    rounds: Annotated[int, Option(min=1, help="Of each batch; all run in turns.")] = 20,
    layers: Annotated[int, Option(min=1, help="Of the BERT.")] = 12,
    width: Annotated[int, Option(min=64, help="Of the BERT, a multiple of 64.")] = 768,
    threads: Annotated[int, Option(min=1, help="That compute.")] = 2,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "encoder-layers",
) -> None:
    """Run batches of texts in this process on each backend in turns, with a matrix product of the MLP between."""
    directory = make_bert(Path(f"build/models/bench-bert-{layers}x{width}"), num_layers=layers, width=width)
    installed = [package.name for package in serving_packages() if package.version is not None]
    runners = {
        backend: EncoderRunner(read_checkpoint(directory), backend=backend, num_threads=threads)
        for backend in (EAGER, *installed)
    }
    generator = np.random.default_rng(SEED)
    rates = {}
    for num_texts in map(int, texts.split()):
        taken: dict[str, list[float]] = {}
        for step in range(1 + rounds):
            lengths = np.clip(generator.exponential(mean_tokens - 4, num_texts).astype(int) + 4, 4, 256)
            for subject, rate in _round(runners, lengths, layers=layers, width=width).items():
                if step:  # the first one warms up
                    taken.setdefault(subject, []).append(rate)
        rates[num_texts] = {subject: median(each) for subject, each in taken.items()}
    console.print(_table(rates, title=f"BERT {layers} x {width}, {threads} threads: median GFLOP/s"))
    document = {"model": {"layers": layers, "width": width}, "threads": threads, "gflop_per_s": rates}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def _round(runners: Mapping[str, EncoderRunner], lengths: np.ndarray, *, layers: int, width: int) -> dict[str, float]:
    """GFLOP/s of the same batch on each."""
    generator = np.random.default_rng(int(lengths.sum()))
    drawn = (generator.integers(1, VOCAB_SIZE, size=length).tolist() for length in lengths)
    batch = [InferSequence(token_ids=tuple(token_ids)) for token_ids in drawn]
    num_tokens = int(lengths.sum())
    flops = layers * (24 * width**2 * num_tokens + 4 * width * int((lengths**2).sum()))
    rates = {backend: flops / _seconds(partial(runner.execute, batch)) for backend, runner in runners.items()}
    rows, weight = torch.randn(num_tokens, width), torch.randn(4 * width, width)
    product_s = _seconds(partial(torch.nn.functional.linear, rows, weight))
    rates[PRODUCT] = 8 * width**2 * num_tokens / product_s
    return {subject: rate / 1e9 for subject, rate in rates.items()}


def _seconds(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


def _table(rates: Mapping[int, Mapping[str, float]], *, title: str) -> Table:
    subjects = next(iter(rates.values()))
    table = Table("texts of a batch", title=title)
    for subject in subjects:
        table.add_column(subject, justify="right")
    for num_texts, row in rates.items():
        table.add_row(str(num_texts), *(f"{row[subject]:.0f}" for subject in subjects))
    return table


if __name__ == "__main__":
    typer.run(main)
