"""Make the demo model: a tiny Llama in Hugging Face format, trained on this machine in about a minute.

Run as `python -m deploy.demo.make_model`. A model made by the same recipe is reused.
"""

import time
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from deploy.demo.checkpoint import Recipe, is_current, write_checkpoint
from deploy.demo.corpus import FACTS_FILE, training_texts
from deploy.demo.llama import LlamaForCausalLM
from deploy.demo.tokenizer import CHAT_TEMPLATE, TURN_END, train_tokenizer
from deploy.demo.training import TrainingPlan, train
from headway.core.model import ModelFamily, ModelSpec, RopeSpec
from headway.core.units import format_duration

DEFAULT_DIRECTORY = Path("build/demo-model")
VOCAB_SIZE = 1024
PLAN = TrainingPlan()
SMOOTHING = 0.95  # of the printed loss, from step to step
SENSIBLE_LOSS = 0.3  # nats per token; above it answers fall apart

console = Console()


def demo_spec(tokenizer: Tokenizer) -> ModelSpec:
    """Under a million parameters: small enough to train at once, large enough to learn its facts by heart."""
    end_of_turn = tokenizer.token_to_id(TURN_END)
    assert end_of_turn is not None
    return ModelSpec(
        family=ModelFamily.LLAMA,
        architecture="LlamaForCausalLM",
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position=1024,
        dtype="float32",
        activation="silu",
        norm_eps=1e-5,
        rope=RopeSpec(theta=10_000.0, rotary_dim=32),
        tied_embeddings=True,
        eos_token_ids=(end_of_turn,),
    )


def make_demo_model(directory: Path, *, plan: TrainingPlan, is_random: bool = False) -> Path:
    """Write the model to `directory` unless it is there already; returns the directory."""
    tokenizer = train_tokenizer(training_texts(), vocab_size=VOCAB_SIZE)
    spec = demo_spec(tokenizer)
    recipe = demo_recipe(spec, plan, is_random=is_random)
    if is_current(directory, recipe):
        console.print(f"demo model: reusing {directory}")
        return directory
    network = LlamaForCausalLM(spec, seed=plan.seed)
    if not is_random:
        train_with_progress(network, tokenizer, plan)
    write_checkpoint(
        directory,
        spec=spec,
        weights=network.checkpoint_tensors(),
        tokenizer=tokenizer,
        recipe=recipe,
    )
    console.print(f"demo model: written to {directory}")
    return directory


def demo_recipe(spec: ModelSpec, plan: TrainingPlan, *, is_random: bool) -> Recipe:
    """Describes all that the model depends on; with another recipe it is made anew."""
    text = "\n".join((FACTS_FILE.read_text(), CHAT_TEMPLATE, *training_texts()))
    return {
        "maker": "deploy.demo.make_model",
        "corpus": sha256(text.encode()).hexdigest()[:16],
        "spec": spec.content_hash,
        "plan": None if is_random else asdict(plan),
        "seed": plan.seed,
    }


def train_with_progress(network: LlamaForCausalLM, tokenizer: Tokenizer, plan: TrainingPlan) -> None:
    """Train and show how far it is; the loss is printed when it is over."""
    start_s = time.monotonic()
    smooth_loss = 0.0
    columns = (
        TextColumn("demo model: training"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=1.0, loss=0.0)
        for step in train(network, tokenizer, plan):
            weight = SMOOTHING if smooth_loss else 0.0
            smooth_loss = weight * smooth_loss + (1 - weight) * step.loss
            progress.update(task, completed=step.share, loss=smooth_loss)
    took = format_duration(time.monotonic() - start_s)
    console.print(f"demo model: trained in {took}, loss {smooth_loss:.3f}")
    if smooth_loss > SENSIBLE_LOSS:
        console.print("demo model: this machine was too slow to finish; give --max-seconds more for better answers")


def main(
    *,
    out: Annotated[Path, typer.Option(help="Directory of the model.")] = DEFAULT_DIRECTORY,
    random: Annotated[bool, typer.Option("--random", help="Random weights, at once.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = PLAN.num_steps,
    max_seconds: Annotated[float, typer.Option(min=1, help="Training time at most.")] = PLAN.max_seconds,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; more help only on an idle machine.")] = 1,
) -> None:
    """Make the demo model, or reuse it."""
    torch.set_num_threads(threads)
    make_demo_model(out, plan=TrainingPlan(num_steps=steps, max_seconds=max_seconds), is_random=random)


if __name__ == "__main__":
    typer.run(main)
