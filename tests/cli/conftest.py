"""Running the `headway` command, and a server that answers it by a script."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.client.scripted import ScriptedService, serving
from tests.command import run_headway

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def endpoint(service: ScriptedService) -> Iterator[str]:
    with serving(service) as endpoint:
        yield endpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A model directory as far as `headway up` reads it before it starts anything: all but the weights."""
    directory = tmp_path / "models" / "tiny"
    directory.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").touch()
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.fixture
def headway(tmp_path: Path) -> Run:
    """`headway(*arguments, stdin="")` runs the command with a state directory of the test's own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "120"}

    def run(*arguments: str, stdin: str = "", timeout_s: float = 150) -> "subprocess.CompletedProcess[str]":
        return run_headway(*arguments, environment=environment, stdin=stdin, timeout_s=timeout_s)

    return run
