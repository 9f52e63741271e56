"""The command: random weights at once, and a model of the same recipe is not made again."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from deploy.demo.make_model import main
from deploy.demo.tokenizer import train_tokenizer

app = typer.Typer()
app.command()(main)


def make(*options: str) -> str:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    return result.output


def test_random_model_has_every_file(tmp_path: Path) -> None:
    make("--random", "--out", str(tmp_path / "model"))
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "recipe.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_same_recipe_is_reused_and_another_is_made_anew(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "model"))
    assert "written" in make("--random", *out)
    assert "reusing" in make("--random", *out)
    output = make("--steps", "2", *out)
    assert "loss" in output
    assert "written" in output
    assert "reusing" in make("--steps", "2", *out)


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
