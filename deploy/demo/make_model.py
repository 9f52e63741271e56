"""Make the demo model: a tiny Llama in Hugging Face format, trained on this machine by `headway train` as a pipeline of
two workers, in about a minute.

Run as `python -m deploy.demo.make_model`. A model made by the same recipe is reused.
"""

import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from safetensors.torch import save_file
from tokenizers import Tokenizer

from deploy.demo.checkpoint import Recipe, is_current, write_checkpoint
from deploy.demo.corpus import FACTS_FILE, training_texts
from deploy.demo.dialogues import training_tensors
from deploy.demo.stack import headway
from deploy.demo.tokenizer import CHAT_TEMPLATE, TURN_END, train_tokenizer
from deploy.demo.weights import random_weights
from headway.core.model import ModelFamily, ModelSpec, RopeSpec

DEFAULT_DIRECTORY = Path("build/demo-model")
VOCAB_SIZE = 1024
SEED = 7
NUM_STEPS = 400
JOB: dict[str, Any] = {
    "batch": 8,
    "seq": 112,
    "workers": 2,
    "method": "inter-only",
    "profile": "never",
    "micro_batches": 4,
    "seed": SEED,
    "optimizer": {"rate": 3e-3, "schedule": "linear", "warm_up": 20, "weight_decay": 0.01, "clip": 1.0},
    "checkpoint": {"every": 0},
}
"""What `headway train` is given beside the number of steps."""

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


def make_demo_model(directory: Path, *, num_steps: int = NUM_STEPS, is_random: bool = False) -> Path:
    """Write the model to `directory` unless it is there already; returns the directory."""
    tokenizer = train_tokenizer(training_texts(), vocab_size=VOCAB_SIZE)
    spec = demo_spec(tokenizer)
    job = JOB | {"steps": num_steps}
    recipe = demo_recipe(spec, None if is_random else job)
    if is_current(directory, recipe):
        console.print(f"demo model: reusing {directory}")
        return directory
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as made:
        first = directory if is_random else Path(made) / directory.name
        weights = random_weights(spec, seed=SEED)
        write_checkpoint(first, spec=spec, weights=weights, tokenizer=tokenizer, recipe=recipe)
        if not is_random:
            train(first, job, tokenizer, out=directory)
    console.print(f"demo model: written to {directory}")
    return directory


def demo_recipe(spec: ModelSpec, job: dict[str, Any] | None) -> Recipe:
    """Describes all that the model depends on; with another recipe it is made anew."""
    text = "\n".join((FACTS_FILE.read_text(), CHAT_TEMPLATE, *training_texts()))
    return {
        "maker": "deploy.demo.make_model",
        "corpus": sha256(text.encode()).hexdigest()[:16],
        "spec": spec.content_hash,
        "job": job,
        "seed": SEED,
    }


def train(first: Path, job: dict[str, Any], tokenizer: Tokenizer, *, out: Path) -> None:
    """Trains what is in `first`, and replaces `out` by what it has become."""
    work = first.parent
    num_rows = job["batch"] * job["steps"]
    save_file(training_tensors(tokenizer, num_rows=num_rows, seq=job["seq"], seed=SEED), work / "data.safetensors")
    given = {"model": str(first), "data": {"tensors": str(work / "data.safetensors")}, **job}
    (work / "job.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    headway("train", str(work / "job.yaml"), state_dir=work / "state")
    shutil.rmtree(out, ignore_errors=True)
    headway("train", "export", "--out", str(out), state_dir=work / "state")


def main(
    *,
    out: Annotated[Path, typer.Option(help="Directory of the model.")] = DEFAULT_DIRECTORY,
    random: Annotated[bool, typer.Option("--random", help="Random weights, at once.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = NUM_STEPS,
) -> None:
    """Make the demo model, or reuse it."""
    make_demo_model(out, num_steps=steps, is_random=random)


if __name__ == "__main__":
    typer.run(main)
