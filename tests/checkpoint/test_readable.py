"""Of a file that a service's user may not read it is said that it may not, and which; not that it is missing."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint

_USER = 10001 if os.getuid() == 0 else os.getuid()

# Whoever may read everything becomes somebody who may not, once everything is imported.
_READER = """
import os, sys
from pathlib import Path
from headway.core.errors import HeadwayError
{imports}

if os.getuid() == 0:
    os.setgroups([]); os.setgid({user}); os.setuid({user})
for path in map(Path, sys.argv[1:]):
    for read in ({reads}):
        try:
            read(path)
            print("has read it")
        except HeadwayError as error:
            print(error.code, error.field, error.message, error.hint, sep="|")
"""
_CHECKPOINTS = ("from headway.checkpoint.model_directory import read_checkpoint", "read_checkpoint,")
_ADAPTERS = ("from headway.checkpoint.adapter import read_adapter", "lambda path: read_adapter('calm', path),")
_TENSORS = (
    """
from headway.checkpoint.tensors import read_tensors
from headway.core.training_job import DataSettings
from headway.train.data import open_data
""",
    """
lambda path: read_tensors([path], field="checkpoint"),
lambda path: open_data(DataSettings(tensors=str(path)), dict(), batch=1, seed=0),
""",
)
_FILES = (
    *("model.safetensors", "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"),
    "chat_template.jinja",
)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A model's, to which everybody may go: those of pytest are for its user alone."""
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        model = make_checkpoint(Path(top) / "models" / "tiny", "llama")
        for file in model.iterdir():
            file.chmod(0o644)
        yield model
        for path in (model.parent, *model.parent.iterdir()):
            path.chmod(0o755)


def test_each_file_of_a_model_that_may_not_be_read(directory: Path) -> None:
    """transformers writes weights with mode 0600."""
    files = [directory.with_name(name) / name for name in _FILES]
    for file in files:
        shutil.copytree(directory, file.parent)
        file.chmod(0)
    whole, *said = _said_of(_CHECKPOINTS, directory, *(file.parent for file in files))
    assert whole == "has read it"
    assert said == [_of_file(file) for file in files]


def test_directories_that_may_not_be_entered(directory: Path) -> None:
    other = directory.with_name("closed")
    shutil.copytree(directory, other)
    other.chmod(0)
    assert _said_of(_CHECKPOINTS, other) == [_of_directory(other / "config.json", other)]
    directory.parent.chmod(0)
    assert _said_of(_CHECKPOINTS, directory) == [_of_directory(directory, directory.parent)]


def test_files_of_an_adapter_that_may_not_be_read(directory: Path) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        adapter = directory.with_name(name)
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        (adapter / "adapter_model.safetensors").write_bytes(b"weights")
        (adapter / name).chmod(0)
        assert _said_of(_ADAPTERS, adapter) == [_of_file(adapter / name, "directory")]
    adapter.chmod(0)
    assert _said_of(_ADAPTERS, adapter) == [_of_directory(adapter / "adapter_config.json", adapter, "directory")]


def test_tensors_of_a_training_run_that_may_not_be_read(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.chmod(0)
    assert _said_of(_TENSORS, file) == [_of_file(file, field) for field in ("checkpoint", "data")]


def _of_file(file: Path, field: str = "") -> str:
    hint = f"As its owner: chmod a+r {file}. In pods g+r is enough, where the volume's files have their fsGroup."
    return f"invalid_argument|{field}|{file} may not be read by user {_USER}.|{hint}"


def _of_directory(path: Path, closed: Path, field: str = "") -> str:
    message = f"{path} may not be read by user {_USER}, who may not enter {closed}."
    return f"invalid_argument|{field}|{message}|As its owner: chmod a+x {closed}."


def _said_of(reader: tuple[str, str], *paths: Path) -> list[str]:
    """What is said of each path by each way to read it, to somebody who does not own it."""
    imports, reads = reader
    program = _READER.format(imports=imports, reads=reads, user=_USER)
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
