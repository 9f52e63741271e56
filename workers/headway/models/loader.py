"""Fills a network with a checkpoint's weights."""

from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.errors import InvalidArgumentError
from headway.models.encoder import Encoder
from headway.models.layout import Layout, alone
from headway.models.linear import Linear
from headway.models.model import Model
from headway.models.packing import Packing
from headway.models.registry import build_encoder, build_model
from headway.models.weights import Part, Tensors

Progress = Callable[[int, int], None]
"""Called with (bytes loaded, bytes in all)."""

# A checkpoint of the whole model has one of these before the names that one of the bare decoder has.
_PREFIXES = ("model.decoder.", "decoder.", "model.", "transformer.", "bert.", "roberta.", "distilbert.")

# Mixtral's names, and those of BERT's first checkpoints, for what the others call so.
_RENAMED = {
    ".block_sparse_moe.": ".mlp.",
    ".w1.": ".gate_proj.",
    ".w2.": ".down_proj.",
    ".w3.": ".up_proj.",
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}

# Constants that some checkpoints carry besides the weights, and heads that are tied to the embedding.
_IGNORED_SUFFIXES = (
    ".attn.bias",
    ".attn.masked_bias",
    "rotary_emb.inv_freq",
    "lm_head.weight",
    "embeddings.position_ids",
)

# Parts of an encoder's checkpoint that its task has no use for.
_IGNORED_PREFIXES = ("pooler.", "cls.", "lm_head.", "vocab_")


class Network(Protocol):
    """A network whose tensors can be filled from a checkpoint."""

    def tensors(self) -> Tensors: ...

    def linears(self) -> list[Linear]: ...


N = TypeVar("N", bound=Network)


def load_model(
    checkpoint: Checkpoint, *, layout: Layout, device: torch.device, progress: Progress | None = None
) -> Model:
    """A rank's part of a decoder, with the checkpoint's weights; only its own are read.

    Raises:
        InvalidArgumentError: see `load_encoder`.
    """
    return _load(checkpoint, build_model, layout=layout, device=device, progress=progress)


def load_encoder(
    checkpoint: Checkpoint,
    *,
    layout: Layout,
    device: torch.device,
    progress: Progress | None = None,
    packs: bool = True,
) -> Encoder:
    """A rank's part of an encoder, with the checkpoint's weights; only its own are read.

    Args:
        packs: whether weights are put into the layout that Headway's kernels multiply fastest with. Those that are not
            are torch's: another library can take them.

    Raises:
        InvalidArgumentError: a tensor is missing, unexpected or mis-shaped, or a file cannot be read; the message
            names both.
    """
    return _load(checkpoint, build_encoder, layout=layout, device=device, progress=progress, packs=packs)


def _load(
    checkpoint: Checkpoint,
    build: Callable[..., N],
    *,
    layout: Layout,
    device: torch.device,
    progress: Progress | None,
    packs: bool = True,
) -> N:
    _check_dtype(checkpoint, device)
    spec = checkpoint.spec
    network = build(spec, layout=layout, device=device)
    everything = alone(spec)
    is_all = layout.shard == everything.shard
    whole = network if is_all else build(spec, layout=everything, device=torch.device("meta"))
    _fill_all(network, checkpoint, progress, whole=whole, packs=packs)
    return network


def _fill_all(
    network: Network, checkpoint: Checkpoint, progress: Progress | None, *, whole: Network, packs: bool
) -> None:
    """Streams the weights into the network, a rank's part of `whole`, and packs each layer once it is complete.

    Files are mapped and one tensor is copied at a time, so the peak on a CPU is one copy of the weights as they are
    packed, the layers of which a part was read, and file pages that the system may drop. A GPU holds the unpacked
    weights from the start.
    """
    missing, all_tensors = network.tensors(), whole.tensors()
    elsewhere = all_tensors.keys() - missing.keys()
    total_bytes = checkpoint.weight_bytes * _num_elements(missing) // _num_elements(all_tensors)
    packing = Packing(network.linears() if packs else (), missing, quantization=checkpoint.spec.quantization)
    loaded_bytes = 0
    for file in checkpoint.weight_files:
        for name, size_bytes in _load_file(file, missing, elsewhere=elsewhere):
            del missing[name]
            packing.loaded(name)
            loaded_bytes += size_bytes
            if progress is not None:
                progress(min(loaded_bytes, total_bytes), total_bytes)
    if missing:
        raise InvalidArgumentError(
            f"{checkpoint.directory} lacks {_some(list(missing))}.",
            hint="Download the checkpoint again, or check that config.json belongs to it.",
        )


def _load_file(file: Path, wanted: Tensors, *, elsewhere: Container[str]) -> Iterator[tuple[str, int]]:
    """Copies the file's tensors into the parts that want them; yields the name of each and the bytes read.

    `elsewhere`: tensors that only other ranks have parts of.
    """
    try:
        for stored_name in _tensor_names(file):
            name = stored_name if stored_name in wanted or stored_name in elsewhere else _own_name(stored_name)
            if name in wanted:
                yield name, _fill(wanted[name], file, stored_name)
            elif name not in elsewhere and not _is_ignored(name):
                raise InvalidArgumentError(
                    f"{stored_name} in {file} is not a tensor of this model.",
                    hint="Check that config.json belongs to the checkpoint.",
                )
    except SafetensorError as error:
        raise InvalidArgumentError(f"{file} cannot be read: {error}.", hint="Download the file again.") from error


def _tensor_names(file: Path) -> list[str]:
    """Returns the tensors' names in the order in which they lie in the file."""
    with safe_open(file, framework="pt") as shard:
        names: list[str] = shard.offset_keys()
        return names


def _fill(parts: Sequence[Part], file: Path, name: str) -> int:
    """Copies pieces of one tensor; returns the bytes read.

    The file is mapped anew for each tensor, so that pages that have been copied leave the process at once.
    """
    with safe_open(file, framework="pt") as shard:
        stored = shard.get_slice(name)
        return sum(_copy(part, stored, f"{name} in {file}") for part in parts)


def _copy(part: Part, stored: Any, place: str) -> int:
    """`stored`: safetensors' view into a mapped file; indexing it reads nothing yet."""
    shape = stored.get_shape()
    if list(part.shape) != shape:
        raise InvalidArgumentError(
            f"{place} has shape {shape}, not {list(part.shape)} as config.json says.",
            hint="Check that config.json belongs to the checkpoint.",
        )
    piece: Tensor = stored[part.index]
    if not piece.is_floating_point():
        raise InvalidArgumentError(
            f"{place} is stored as {piece.dtype}; quantised weights are not supported.",
            hint="Use the unquantised checkpoint.",
        )
    part.view.copy_(piece)
    return int(piece.nbytes)


def _num_elements(tensors: Tensors) -> int:
    return sum(part.view.numel() for parts in tensors.values() for part in parts)


def _own_name(name: str) -> str:
    """A tensor's name without the prefix of the whole model, and as the network calls it."""
    name = name.removeprefix(next((prefix for prefix in _PREFIXES if name.startswith(prefix)), ""))
    for theirs, ours in _RENAMED.items():
        name = name.replace(theirs, ours)
    return name


def _is_ignored(name: str) -> bool:
    return name.endswith(_IGNORED_SUFFIXES) or name.startswith(_IGNORED_PREFIXES)


def _check_dtype(checkpoint: Checkpoint, device: torch.device) -> None:
    if device.type == "cpu" and checkpoint.spec.dtype == "float16":
        raise InvalidArgumentError(
            "float16 is not computed on the CPU.", hint="Choose dtype bfloat16 or float32.", field="dtype"
        )


def _some(names: list[str]) -> str:
    """The first three names and how many there are besides."""
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")
