"""LoRA adapters with random weights, and checkpoints with what they change."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from headway.checkpoint.adapter import read_adapter
from headway.core.adapter import Adapter

_RANK = 8
_SCALE = 2.0
_TARGETS = ("q_proj", "v_proj")


def make_adapter(directory: Path, checkpoint: Path, *, seed: int = 0) -> Adapter:
    """Writes an adapter of all layers of a checkpoint, as PEFT saves one; its name is the directory's."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in _changed_weights(checkpoint).items():
        rows, columns = weight.shape
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{stem}.lora_A.weight"] = 0.5 * torch.randn(_RANK, columns, generator=generator)
        tensors[f"{stem}.lora_B.weight"] = 0.5 * torch.randn(rows, _RANK, generator=generator)
    directory.mkdir(parents=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": _RANK,
        "lora_alpha": _SCALE * _RANK,
        "target_modules": list(_TARGETS),
        "bias": "none",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return read_adapter(directory.name, directory)


def merge_adapter(directory: Path, checkpoint: Path, adapter: Adapter) -> Path:
    """Writes the checkpoint with what the adapter changes of its weights."""
    shutil.copytree(checkpoint, directory)
    (weights_file,) = directory.glob("*.safetensors")
    weights = load_file(weights_file)
    changes = load_file(Path(adapter.directory) / "adapter_model.safetensors")
    for name in _changed_weights(checkpoint):
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        change = changes[f"{stem}.lora_B.weight"] @ changes[f"{stem}.lora_A.weight"]
        weights[name] = weights[name] + _SCALE * change
    save_file(weights, weights_file, metadata={"format": "pt"})
    return directory


def _changed_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    (weights_file,) = checkpoint.glob("*.safetensors")
    weights = load_file(weights_file)
    return {name: weight for name, weight in weights.items() if name.split(".")[-2] in _TARGETS}
