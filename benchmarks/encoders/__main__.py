"""Embeddings a second of a BERT with and without a backend: one stack serves it twice, and both are asked in turns."""

import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.encoders.checkpoint import SEED, VOCAB_SIZE, make_bert
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.server import free_port
from headway.client import Client

MIN_RATIO = 1.2
TOLERANCE = 1e-4
PLAIN, PLACED = "plain", "placed"

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Seconds of the same bursts on the two replicas, and how far their vectors are apart.

    Attributes:
        backend: what the second one runs on, as the worker says.
        deviation: the largest difference of vectors, as a share of the largest value.
    """

    backend: str
    num_texts: int
    num_tokens: int
    plain_s: list[float]
    placed_s: list[float]
    deviation: float

    @property
    def ratio(self) -> float:
        """The median of the rounds': each has both, one after the other."""
        return median(plain / placed for plain, placed in zip(self.plain_s, self.placed_s, strict=True))

    @property
    def best_ratio(self) -> float:
        """Of the quickest rounds: what else the machine did counts least in them."""
        return min(self.plain_s) / min(self.placed_s)


def main(
    *,
    backend: Annotated[str, Option(help="What the second replica runs on.")] = "fastest",
    texts: Annotated[int, Option(min=1, help="Texts of a burst, all at once.")] = 48,
    mean_tokens: Annotated[int, Option(min=4, help="Of a text; lengths are drawn.")] = 32,
    repeats: Annotated[int, Option(min=1, help="Bursts of each.")] = 5,
    layers: Annotated[int, Option(min=1, help="Of the BERT.")] = 12,
    width: Annotated[int, Option(min=64, help="Of the BERT, a multiple of 64.")] = 768,
    threads: Annotated[int, Option(min=1, help="Of the worker.")] = 2,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "encoders",
) -> None:
    """Serve a BERT with and without a backend on one worker, and send both the same bursts in turns."""
    directory = make_bert(Path(f"build/models/bench-bert-{layers}x{width}"), num_layers=layers, width=width)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        state = Path(scratch) / "state"
        models = [f"--model={model}={directory.resolve()}" for model in (PLAIN, PLACED)]
        placing = [f"--backend={PLACED}={backend}", "--workers=1", f"--threads={threads}", "--memory=8GiB"]
        _headway("up", *models, *placing, "--no-profile", f"--port={free_port()}", "--detach", f"--state-dir={state}")
        try:
            found = _compare(state, num_texts=texts, mean_tokens=mean_tokens, repeats=repeats)
        finally:
            _headway("down", f"--state-dir={state}")
    console.print(_table(found, title=f"BERT {layers} x {width}, {threads} threads, {found.num_tokens} tokens a burst"))
    document = {
        "model": {"layers": layers, "width": width},
        "threads": threads,
        **asdict(found),
        "ratio": found.ratio,
        "best_ratio": found.best_ratio,
        "texts_per_s": {PLAIN: texts / min(found.plain_s), PLACED: texts / min(found.placed_s)},
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def _headway(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "headway.cli", *arguments], check=True)


def _compare(state: Path, *, num_texts: int, mean_tokens: int, repeats: int) -> Comparison:
    generator = np.random.default_rng(SEED)
    durations_s: dict[str, list[float]] = {PLAIN: [], PLACED: []}
    deviation, num_tokens = 0.0, 0
    with Client(state_dir=state, timeout_s=600.0) as client:
        for step in range(1 + repeats):
            lengths = np.clip(generator.exponential(mean_tokens - 4, num_texts).astype(int) + 4, 4, 256)
            burst = [generator.integers(1, VOCAB_SIZE, size=length).tolist() for length in lengths]
            num_tokens = int(lengths.sum())
            vectors = {}
            for model in (PLAIN, PLACED) if step % 2 else (PLACED, PLAIN):
                started_s = time.perf_counter()
                vectors[model] = np.array(client.embed(burst, model=model, timeout_s=600.0).vectors)
                if step:  # the first one warms up
                    durations_s[model].append(time.perf_counter() - started_s)
            apart = np.abs(vectors[PLAIN] - vectors[PLACED]).max() / np.abs(vectors[PLAIN]).max()
            deviation = max(deviation, float(apart))
        groups = client.status().fleet.groups
    return Comparison(
        backend=next(group.backend for group in groups if group.model == PLACED),
        num_texts=num_texts,
        num_tokens=num_tokens,
        plain_s=durations_s[PLAIN],
        placed_s=durations_s[PLACED],
        deviation=deviation,
    )


def _table(found: Comparison, *, title: str) -> Table:
    table = Table("texts a second", title=title)
    for heading in ("without", "with", "with / without"):
        table.add_column(heading, justify="right")
    for number, (plain_s, placed_s) in enumerate(zip(found.plain_s, found.placed_s, strict=True), 1):
        rates = (found.num_texts / plain_s, found.num_texts / placed_s)
        table.add_row(f"burst {number}", *(f"{rate:.1f}" for rate in rates), f"{plain_s / placed_s:.2f}")
    colour = "green" if found.ratio >= MIN_RATIO and found.deviation <= TOLERANCE else "red"
    table.add_row("median", "", "", f"[{colour}]{found.ratio:.2f}[/]")
    table.caption = f"on {found.backend}; vectors differ by {found.deviation:.1e}; target: {MIN_RATIO} and {TOLERANCE}"
    return table


if __name__ == "__main__":
    typer.run(main)
