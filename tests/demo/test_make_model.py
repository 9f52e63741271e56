"""The command: random weights at once, a model that `headway train` trains, and none of the same recipe made again."""

import json
from pathlib import Path

import pytest
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from deploy.demo.make_model import SEED, main, make_demo_model
from deploy.demo.tokenizer import render_chat, train_tokenizer
from deploy.demo.weights import random_weights
from headway.core.hf_config import spec_from_config

app = typer.Typer()
app.command()(main)
FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "recipe.json",
    "tokenizer.json",
    "tokenizer_config.json",
]
QUESTION = [{"role": "user", "content": "What is headway?"}]


def make(*options: str) -> str:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    return result.output


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_same_recipe_is_reused_and_another_is_made_anew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    directory = tmp_path / "model"
    out = ("--out", str(directory))
    assert "written" in make("--random", *out)
    assert files(directory) == FILES
    assert "reusing" in make("--random", *out)
    first = (directory / "model.safetensors").read_bytes()
    assert "written" in make("--steps", "2", *out)
    assert "step 2 of 2: loss" in capfd.readouterr().out
    assert files(directory) == FILES
    assert len((directory / "model.safetensors").read_bytes()) == len(first)
    assert (directory / "model.safetensors").read_bytes() != first
    assert "reusing" in make("--steps", "2", *out)


def test_what_is_made_is_what_transformers_reads(tmp_path: Path) -> None:
    directory = make_demo_model(tmp_path / "model", is_random=True)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rendered = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert rendered == render_chat(QUESTION, add_generation_prompt=True)
    assert tokenizer.eos_token == "<|im_end|>"
    spec = spec_from_config(json.loads((directory / "config.json").read_text()))
    read = dict(AutoModelForCausalLM.from_pretrained(directory).named_parameters())
    weights = random_weights(spec, seed=SEED)
    assert spec.tied_embeddings
    assert {name: tuple(each.shape) for name, each in weights.items()} == {
        name: tuple(each.shape) for name, each in read.items()
    }
    assert all(bool((read[name] == each).all()) for name, each in weights.items())


def test_an_interrupted_run_leaves_no_half_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deploy.demo.checkpoint.config_document", interrupt)
    CliRunner().invoke(app, ["--random", "--out", str(tmp_path / "model")])
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("text", ["What is headway?\n", "Zürich — 列車 🚆", "  two  spaces"])
def test_tokenizer_gives_any_text_back(text: str) -> None:
    tokenizer = train_tokenizer(["What is headway?"], vocab_size=300)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
