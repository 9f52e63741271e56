"""What the directory of an adapter has to hold."""

from pathlib import Path

import pytest

from headway.checkpoint.adapter import read_adapter
from headway.core.errors import HeadwayError


def write(directory: Path, *, config: str = '{"peft_type": "LORA"}', weights: bytes = b"weights") -> Path:
    directory.mkdir()
    (directory / "adapter_config.json").write_text(config)
    (directory / "adapter_model.safetensors").write_bytes(weights)
    return directory


def test_an_adapter_is_known_by_its_content(tmp_path: Path) -> None:
    first = read_adapter("calm", write(tmp_path / "a"))
    same = read_adapter("calm", write(tmp_path / "b"))
    other = read_adapter("calm", write(tmp_path / "c", weights=b"others"))
    assert (first.name, first.directory) == ("calm", str(tmp_path / "a"))
    assert first.key == same.key != other.key


@pytest.mark.parametrize(
    ("config", "told"),
    [("[", "is no JSON object"), ("[]", "is no JSON object"), ('{"peft_type": "IA3"}', "peft_type 'IA3'")],
)
def test_what_is_no_lora_adapter_is_refused(tmp_path: Path, config: str, told: str) -> None:
    with pytest.raises(HeadwayError, match=told):
        read_adapter("calm", write(tmp_path / "a", config=config))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write(tmp_path / "a") / "adapter_model.safetensors").unlink()
    with pytest.raises(HeadwayError, match=r"adapter_model\.safetensors is missing"):
        read_adapter("calm", tmp_path / "a")
    with pytest.raises(HeadwayError, match=r"adapter_config\.json is missing"):
        read_adapter("calm", tmp_path / "nowhere")
