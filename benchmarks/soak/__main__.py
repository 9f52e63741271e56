"""Random requests of every kind, cancellations, pins and preemptions on a real engine and model; nothing may leak."""

import random
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.soak.replay import Replay
from benchmarks.soak.round import Round, Tally
from benchmarks.soak.traffic import Kind
from deploy.demo.make_model import make_demo_model
from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.engine.config import EngineConfig
from headway.runner.model_runner import ModelRunner

DEFAULT_DIRECTORY = Path("build/models/soak")
NUM_REPLAYS = 12  # of each round
EVENTS = ("cancelled", "preempted", "swapped", "pinned or unpinned", "prefix tokens found", "drafts accepted")

# Too small for what is running, so that groups give way all the time.
SMALL = EngineConfig(num_blocks=72, block_size=16, max_model_len=400, max_num_seqs=24, max_num_batched_tokens=96)
SETTINGS = (
    replace(SMALL, preemption="recompute"),
    replace(SMALL, preemption="swap", num_host_blocks=60),
    replace(SMALL, preemption="auto", num_host_blocks=40, num_draft_tokens=4),
    replace(SMALL, preemption="swap", num_host_blocks=200, block_size=4, num_blocks=288),
    replace(SMALL, preemption="recompute", enable_prefix_cache=False, max_num_prefill_tokens=32),
)
ROOMY = EngineConfig(num_blocks=512, max_model_len=400, enable_prefix_cache=False)

console = Console()


def main(
    *,
    minutes: Annotated[float, Option(min=0.01, help="How long, about.")] = 10.0,
    seed: Annotated[int, Option(help="Of the traffic; what a request's neighbours are depends on the clock.")] = 0,
    threads: Annotated[int, Option(min=1, help="CPU threads that compute.")] = 1,
    model_dir: Annotated[Path, Option(help="Tiny model with random weights, made if absent.")] = DEFAULT_DIRECTORY,
) -> None:
    """Run rounds of different settings until the time is over; the first broken promise ends it with a traceback."""
    torch.set_num_threads(threads)
    checkpoint = read_checkpoint(make_demo_model(model_dir, is_random=True))
    tally = soak(checkpoint, minutes=minutes, seed=seed)
    console.print(tally_table(tally))
    missing = [name for name in (*Kind, *EVENTS) if not tally.counts[name]]
    if missing:
        console.print(f"never seen: {', '.join(missing)}; the soak was too short", style="red")
        raise typer.Exit(1)
    console.print("no block leaked on any tier, and no answer differed")


def soak(checkpoint: Checkpoint, *, minutes: float, seed: int) -> Tally:
    """At least one round of each setting."""
    tally = Tally()
    draw = random.Random(seed)
    replay = Replay(of_model(ROOMY, checkpoint), runner=make_runner(ROOMY, checkpoint))
    round_s = min(60 * minutes / len(SETTINGS), 20.0)
    num_rounds = max(len(SETTINGS), round(60 * minutes / round_s))
    for index, setting in zip(range(num_rounds), cycle(SETTINGS), strict=False):
        config = of_model(setting, checkpoint)
        runner = make_runner(config, checkpoint)
        Round(config, runner=runner, seed=draw.getrandbits(32), tally=tally).run(seconds=round_s)
        for group, answers in draw.sample(tally.answered, min(NUM_REPLAYS, len(tally.answered))):
            replay.check(group, answers)
            tally.counts["answers computed again"] += len(answers)
        tally.answered.clear()
        console.print(f"round {index + 1} of {num_rounds}: {setting.preemption}, {tally.counts['steps']} steps so far")
    return tally


def of_model(config: EngineConfig, checkpoint: Checkpoint) -> EngineConfig:
    return replace(config, vocab_size=checkpoint.spec.vocab_size, eos_token_ids=checkpoint.eos_token_ids)


def make_runner(config: EngineConfig, checkpoint: Checkpoint) -> ModelRunner:
    return ModelRunner(
        checkpoint,
        num_blocks=config.num_blocks,
        block_size=config.block_size,
        num_host_blocks=config.num_host_blocks,
    )


def tally_table(tally: Tally) -> Table:
    table = Table("what", title="soak")
    table.add_column("how often", justify="right")
    for name, count in tally.counts.items():
        table.add_row(name, f"{count:,}")
    return table


if __name__ == "__main__":
    typer.run(main)
