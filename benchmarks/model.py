"""The benchmark checkpoint: a small Llama with random weights in Hugging Face format, the same on every machine.

8 layers, 512 wide, 8 heads over 4 KV heads, 32,000 tokens of vocabulary, float32 (225 MB). Weights are noise, so
answers mean nothing; shapes, file formats and tokenizer are real. Run as `python -m benchmarks.model`.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from tokenizers import Tokenizer

from deploy.demo.checkpoint import Recipe, is_current, write_checkpoint
from deploy.demo.tokenizer import TURN_END, train_tokenizer
from deploy.demo.weights import random_weights
from headway.core.model import ModelFamily, ModelSpec, RopeSpec

MODEL_NAME = "bench-llama"
DEFAULT_DIRECTORY = Path("build/models") / MODEL_NAME
SEED = 20
NUM_WORDS = 24_000
WORDS_PER_LINE = 50
CONSONANTS = (*"bcdfghjklmnprstvwz", "ch", "sh", "th", "st", "br", "tr", "pl")
VOWELS = (*"aeiou", "ai", "ea", "ou")

BENCHMARK_SPEC = ModelSpec(
    family=ModelFamily.LLAMA,
    architecture="LlamaForCausalLM",
    vocab_size=32_000,
    hidden_size=512,
    num_layers=8,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
    intermediate_size=1408,
    max_position=2048,
    dtype="float32",
    activation="silu",
    norm_eps=1e-5,
    rope=RopeSpec(theta=10_000.0, rotary_dim=64),
    eos_token_ids=(2,),
)


def make_benchmark_model(directory: Path = DEFAULT_DIRECTORY, *, spec: ModelSpec = BENCHMARK_SPEC) -> Path:
    """Write the checkpoint to `directory` unless it is there already; returns the directory."""
    recipe: Recipe = {"maker": "benchmarks.model", "seed": SEED, "spec": spec.content_hash}
    if is_current(directory, recipe):
        return directory
    tokenizer = make_tokenizer(spec.vocab_size)
    assert spec.eos_token_ids == (tokenizer.token_to_id(TURN_END),)
    weights = random_weights(spec, seed=SEED)
    write_checkpoint(directory, spec=spec, weights=weights, tokenizer=tokenizer, recipe=recipe)
    return directory


def make_tokenizer(vocab_size: int) -> Tokenizer:
    """BPE over invented words, filled up to exactly `vocab_size` entries."""
    tokenizer = train_tokenizer(invented_lines(), vocab_size=vocab_size)
    document = json.loads(tokenizer.to_str())
    vocabulary = document["model"]["vocab"]
    for token_id in range(len(vocabulary), vocab_size):
        vocabulary[f"unused{token_id}"] = token_id
    return Tokenizer.from_str(json.dumps(document))


def invented_lines() -> Iterator[str]:
    """Lines of pronounceable words, some frequent and most rare, from a fixed seed."""
    generator = random.Random(SEED)
    words = [invented_word(generator) for _ in range(NUM_WORDS)]
    ranked = [word for rank, word in enumerate(words) for _ in range(1 + 500 // (1 + rank))]
    generator.shuffle(ranked)
    for start in range(0, len(ranked), WORDS_PER_LINE):
        yield " ".join(ranked[start : start + WORDS_PER_LINE])


def invented_word(generator: random.Random) -> str:
    num_syllables = generator.choice((1, 2, 2, 3, 3, 4))
    return "".join(generator.choice(CONSONANTS) + generator.choice(VOWELS) for _ in range(num_syllables))


def main(*, out: Annotated[Path, typer.Option(help="Directory of the checkpoint.")] = DEFAULT_DIRECTORY) -> None:
    """Make the benchmark checkpoint."""
    typer.echo(make_benchmark_model(out))


if __name__ == "__main__":
    typer.run(main)
